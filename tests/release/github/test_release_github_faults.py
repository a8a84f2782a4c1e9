"""Every fault at every request of a publish: the run itself, or the same command again, reaches the correct state."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from fake_github import FAULTS, Fault
from fake_github.faults import CUT_AFTER, CUT_AND_LAG, KILL_AFTER, PRIMARY, STARTER
from fake_github.hub import Hub
from fake_github.publishing import PublishingProcess, publishing_process
from wheelfactory.release.github import drafts

Job: TypeAlias = Callable[[Hub], object]

ANSWERED = [fault for fault in FAULTS if not fault.kills]
QUICK = (CUT_AFTER, CUT_AND_LAG, STARTER, PRIMARY)
"""One fault of each kind: GitHub did the request, does not show it yet, did half of it, or refused it."""


def at_once(hub: Hub) -> None:
    """One process uploads all wheels and publishes them."""
    hub.publish()


def staged(hub: Hub) -> None:
    """Each wheel is staged by its own process; another process, without the files, publishes them."""
    for one in hub.added:
        hub.stage([one])
    hub.publish_staged()


def in_parts(hub: Hub) -> None:
    """Each part takes only one wheel, so that there are three parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafts, "MAX_WHEELS", 1)
        hub.publish()


def requests_hit_by(fault: Fault, job: Job, hub: Hub) -> list[int]:
    """The numbers of the requests of an undisturbed job that the fault can hit."""
    job(hub)
    return [number for number, call in enumerate(hub.github.calls) if fault.hits(call)]


@pytest.mark.parametrize(
    ("fault", "job"),
    [
        *(pytest.param(one, at_once, id=one.name, marks=() if one in QUICK else pytest.mark.slow) for one in ANSWERED),
        pytest.param(CUT_AFTER, staged, id=f"staged, {CUT_AFTER.name}", marks=pytest.mark.slow),
        pytest.param(CUT_AND_LAG, in_parts, id=f"in parts, {CUT_AND_LAG.name}", marks=pytest.mark.slow),
    ],
)
def test_a_publish_survives_a_fault_at_any_request(fault: Fault, job: Job, hub: Hub) -> None:
    hub.added = hub.added[:2] if job is at_once else hub.added
    numbers = requests_hit_by(fault, job, hub)
    assert len(numbers) >= 6
    for number in numbers:
        hub.github.fresh().failing = (number, fault)
        job(hub)
        assert hub.github.failing is None
        assert hub.github.clock.pauses, "a pause before the next try"
        hub.assert_published()
        assert hub.tags() == (["v1", "wheels-v1-2", "wheels-v1-3"] if job is in_parts else ["v1"])
    changes = hub.changes()
    job(hub)
    assert hub.changes() == changes, "nothing is done twice"


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
    fault: Fault, most_wheels: int, hub: Hub, process: PublishingProcess
) -> None:
    hub.added = hub.added[:2]
    numbers = requests_hit_by(fault, at_once if most_wheels > 1 else in_parts, hub)
    assert len(numbers) >= 10
    for number in numbers:
        hub.github.fresh().failing = (number, fault)
        hub.github.victim = lambda: process.child
        for ending in (-signal.SIGKILL, 0):
            with hub.github.lock:  # until it is known whom to kill
                process.start(hub.added, hub.github.environ(), most_wheels)
            assert process.ending() == ending
        hub.assert_published()
        assert len(hub.tags()) == (1 if most_wheels > 1 else 2)
