"""Every fault at every request of a publish: the run itself, or the same command again, reaches the correct state."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from fake_github import FAULTS, FakeGitHub, Fault
from fake_github.faults import CUT_AFTER, CUT_AND_LAG, KILL_AFTER, PRIMARY, STARTER
from fake_github.outcome import Added, assert_published
from fake_github.publishing import PublishingProcess, publishing_process
from wheelfactory.release.github import drafts
from wheelfactory.release.github.publisher import GitHubPublisher
from wheelfactory.release.transaction import publish, stage

NewPublisher: TypeAlias = Callable[..., GitHubPublisher]
Job: TypeAlias = Callable[[NewPublisher, Added], object]

ANSWERED = [fault for fault in FAULTS if not fault.kills]
QUICK = (CUT_AFTER, CUT_AND_LAG, STARTER, PRIMARY)
"""One fault of each kind: GitHub did the request, does not show it yet, did half of it, or refused it."""


def at_once(publisher: NewPublisher, added: Added) -> None:
    """One process uploads all wheels and publishes them."""
    publish(publisher(), added)


def staged(publisher: NewPublisher, added: Added) -> None:
    """Each wheel is staged by its own process; another process, without the files, publishes them."""
    for one in added:
        stage(publisher(), [one])
    publish(publisher(), [(row, None) for row, _ in added])


def in_parts(publisher: NewPublisher, added: Added) -> None:
    """Each part takes only one wheel, so that there are three parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafts, "MAX_WHEELS", 1)
        publish(publisher(), added)


def changing(calls: list[str]) -> list[str]:
    """The requests that change something."""
    return [call for call in calls if not call.startswith("GET")]


def requests_hit_by(fault: Fault, job: Job, github: FakeGitHub, publisher: NewPublisher, added: Added) -> list[int]:
    """The numbers of the requests of an undisturbed job that the fault can hit."""
    job(publisher, added)
    return [
        number
        for number, call in enumerate(github.calls)
        if (not fault.uploads_only or "/assets " in call) and not (fault.changes_only and call.startswith("GET"))
    ]


@pytest.mark.parametrize(
    ("fault", "job"),
    [
        *(
            pytest.param(fault, at_once, id=fault.name, marks=() if fault in QUICK else pytest.mark.slow)
            for fault in ANSWERED
        ),
        pytest.param(CUT_AFTER, staged, id=f"staged, {CUT_AFTER.name}", marks=pytest.mark.slow),
        pytest.param(CUT_AND_LAG, in_parts, id=f"in parts, {CUT_AND_LAG.name}", marks=pytest.mark.slow),
    ],
)
def test_a_publish_survives_a_fault_at_any_request(
    fault: Fault, job: Job, github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    added = added[:2] if job is at_once else added
    rows = [row for row, _ in added]
    numbers = requests_hit_by(fault, job, github, publisher, added)
    assert len(numbers) >= 6
    for number in numbers:
        github.fresh().failing = (number, fault)
        job(publisher, added)
        assert github.failing is None
        assert github.clock.pauses, "a pause before the next try"
        assert_published(github.repository, rows)
        tags = ["v1", "wheels-v1-2", "wheels-v1-3"] if job is in_parts else ["v1"]
        assert [release.tag for release in github.repository.published()] == tags
    changes = changing(github.calls)
    job(publisher, added)
    assert changing(github.calls) == changes, "nothing is done twice"


@pytest.fixture(scope="module")
def process() -> Iterator[PublishingProcess]:
    with publishing_process() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "most_wheels"),
    [
        pytest.param(KILL_AFTER, 499, id=KILL_AFTER.name),
        pytest.param(dataclasses.replace(KILL_AFTER, changes_only=True), 1, id=f"in parts, {KILL_AFTER.name}"),
    ],
)
def test_the_same_command_completes_a_publish_that_was_killed_at_any_request(
    fault: Fault,
    most_wheels: int,
    github: FakeGitHub,
    publisher: NewPublisher,
    added: Added,
    process: PublishingProcess,
) -> None:
    added = added[:2]
    rows = [row for row, _ in added]
    numbers = requests_hit_by(fault, at_once if most_wheels > 1 else in_parts, github, publisher, added)
    assert len(numbers) >= 10
    for number in numbers:
        github.fresh().failing = (number, fault)
        github.victim = lambda: process.child
        for ending in (-signal.SIGKILL, 0):
            with github.lock:  # until it is known whom to kill
                process.start(added, github.environ(), most_wheels)
            assert process.ending() == ending
        assert_published(github.repository, rows)
        assert len(github.repository.published()) == (1 if most_wheels > 1 else 2)
