"""Two publishes at once, and a token that expires: at whatever request, nothing is lost and nothing is un-yanked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import requests

from fake_github import TOKEN, FakeGitHub
from fake_github.outcome import Added, assert_published, sha256
from fake_github.repository import OWNER_REPO
from release_factory import additions, flash_attn_wheel
from wheelfactory.core.errors import PublishError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.publisher import GitHubPublisher
from wheelfactory.release.github.releases import Releases
from wheelfactory.release.manifest import manifest_bytes
from wheelfactory.release.transaction import publish, stage, yank

NewPublisher: TypeAlias = Callable[..., GitHubPublisher]
Change: TypeAlias = Callable[[GitHubPublisher], object]
Attempt: TypeAlias = Callable[[Change, GitHubPublisher], None]

YANKED_CELL = "fa2.8.3-rocm7.14-torch2.14.1-py3-triton"
REASON = "wrong kernels"


class InterruptedClient(Client):
    """A client that calls `before` with the number of each request, and whose token can expire."""

    def __init__(self, github: FakeGitHub) -> None:
        super().__init__(github.repository.api, OWNER_REPO, TOKEN, clock=github.clock, sleep=github.clock.sleep)
        self.before: Callable[[int], None] = lambda _number: None
        self.methods: list[str] = []

    def expire(self) -> None:
        self._token = "ghs_expired"  # noqa: S105 (opens nothing)

    def _exchange(self, method: str, url: str, **options: Any) -> requests.Response:
        self.methods.append(method)
        self.before(len(self.methods) - 1)
        return super()._exchange(method, url, **options)


@pytest.fixture(params=[pytest.param(1, id="each second"), pytest.param(10, id="same second", marks=pytest.mark.slow)])
def _seconds(github: FakeGitHub, request: pytest.FixtureRequest) -> None:
    """Each release is published in a second of its own, or all in the same one."""
    github.repository.a_second = request.param


@pytest.fixture
def old(tmp_path: Path) -> Added:
    """A wheel that is published before, and is yanked."""
    return additions([flash_attn_wheel(tmp_path / "old", YANKED_CELL)])


def reset(github: FakeGitHub, old: Added, publisher: NewPublisher) -> None:
    """Publish only the old wheel."""
    a_second = github.repository.a_second
    github.fresh().repository.a_second = a_second
    publish(publisher("v1"), old)


def interrupted(github: FakeGitHub, tag: str) -> tuple[InterruptedClient, GitHubPublisher]:
    client = InterruptedClient(github)
    return client, GitHubPublisher(Releases(client), tag)


def methods_of(github: FakeGitHub, change: Change) -> list[str]:
    """The methods of the requests of an undisturbed change."""
    client, publisher = interrupted(github, "v2")
    change(publisher)
    return client.methods


def assert_both(github: FakeGitHub, old: Added, added: Added) -> None:
    """Assert that the old wheels are yanked and the added ones published."""
    yanked = [row.model_copy(update={"yanked": REASON}) for row, _ in old]
    assert_published(github.repository, [*yanked, *(row for row, _ in added)])


def changes(old: Added, added: Added, *, yank_interrupts: bool) -> tuple[Change, Change]:
    """The change that is interrupted, and the one of another run that interrupts it: a yank and a publish."""

    def yank_old(one: GitHubPublisher) -> None:
        yank(one, old[0][0].filename, REASON)

    def publish_added(one: GitHubPublisher) -> None:
        publish(one, added)

    return (publish_added, yank_old) if yank_interrupts else (yank_old, publish_added)


@pytest.mark.usefixtures("_seconds")
@pytest.mark.parametrize("yank_interrupts", [True, False], ids=["yank during a publish", "publish during a yank"])
def test_two_publishes_at_once_end_with_both_changes(
    github: FakeGitHub, publisher: NewPublisher, old: Added, added: Added, yank_interrupts: bool
) -> None:
    added = added[:1]
    run, other = changes(old, added, yank_interrupts=yank_interrupts)
    reset(github, old, publisher)
    count = len(methods_of(github, run))
    assert count > 8
    for number in range(count):
        reset(github, old, publisher)
        client, first = interrupted(github, "v2")

        def before(now: int, number: int = number) -> None:
            if now == number:
                other(publisher("other"))

        client.before = before
        run(first)
        assert len(client.methods) > number
        assert_both(github, old, added)


@pytest.mark.slow
@pytest.mark.parametrize("yank_interrupts", [True, False], ids=["yank during a publish", "publish during a yank"])
def test_two_publishes_under_one_tag_end_with_both_changes_or_an_error_that_a_rerun_repairs(
    github: FakeGitHub, publisher: NewPublisher, old: Added, added: Added, yank_interrupts: bool
) -> None:
    added = added[:1]
    run, other = changes(old, added, yank_interrupts=yank_interrupts)
    reset(github, old, publisher)
    for number in range(len(methods_of(github, run))):
        reset(github, old, publisher)
        client, first = interrupted(github, "v2")

        refused: list[Change] = []

        def attempt(change: Change, one: GitHubPublisher, refused: list[Change] = refused) -> None:
            try:
                change(one)
            except PublishError:
                refused.append(change)

        def before(now: int, number: int = number, attempt: Attempt = attempt) -> None:
            if now == number:
                attempt(other, publisher("v2"))

        client.before = before
        attempt(run, first)
        for change in refused:
            change(publisher("v2"))
        assert_both(github, old, added)


def test_a_yank_under_the_tag_of_staged_wheels_is_refused(
    github: FakeGitHub, publisher: NewPublisher, old: Added, added: Added
) -> None:
    reset(github, old, publisher)
    stage(publisher("v2"), added)
    (draft,) = github.repository.drafts()
    files = draft.files()
    with pytest.raises(PublishError, match=r"wheels are staged under this tag: v2 has .*\.whl and 2 more") as refused:
        yank(publisher("v2"), old[0][0].filename, REASON)
    assert "another --tag" in refused.value.hint
    assert [draft.files() for draft in github.repository.drafts()] == [files]
    yank(publisher("yank-1"), old[0][0].filename, REASON)
    publish(publisher("v2"), [(row, None) for row, _ in added])
    assert_both(github, old, added)


def test_a_publish_that_is_found_before_publishing_needs_no_second_release(
    github: FakeGitHub, publisher: NewPublisher, old: Added, added: Added
) -> None:
    github.repository.a_second = 1  # in the same second the other release can win
    reset(github, old, publisher)
    methods = methods_of(github, lambda one: publish(one, added))
    last_upload = max(number for number, method in enumerate(methods) if method == "POST")
    reset(github, old, publisher)
    client, first = interrupted(github, "v2")

    def before(number: int) -> None:
        if number == last_upload:
            yank(publisher("yank-1"), old[0][0].filename, REASON)

    client.before = before
    publish(first, added)
    assert {release.tag for release in github.repository.published()} == {"v1", "yank-1", "v2"}


@pytest.mark.usefixtures("_seconds")
def test_a_token_that_expires_while_another_run_yanks(
    github: FakeGitHub, publisher: NewPublisher, old: Added, added: Added
) -> None:
    added = added[:1]
    name = old[0][0].filename
    reset(github, old, publisher)
    count = len(methods_of(github, lambda one: publish(one, added)))
    for number in range(count - 1):  # a token that expires after the last request is not missed
        reset(github, old, publisher)
        client, first = interrupted(github, "v2")

        def before(now: int, client: InterruptedClient = client, number: int = number) -> None:
            if now == number:
                yank(publisher("yank-1"), name, REASON)
            if now > number:
                client.expire()

        client.before = before
        with pytest.raises(PublishError, match="GitHub does not accept the token"):
            publish(first, added)
        assert {row.filename: row.yanked for row in publisher(None, None).rows()}[name] == REASON
        publish(publisher("v2"), added)
        assert_both(github, old, added)


def test_rows_of_a_manifest_published_long_before_are_not_merged(
    github: FakeGitHub, publisher: NewPublisher, old: Added, added: Added
) -> None:
    reset(github, old, publisher)
    publish(publisher("v2"), added)
    first, second = github.repository.published()
    (manifest,) = (one for one in second.assets.values() if one.name == MANIFEST_NAME)
    manifest.content = manifest_bytes([row for row, _ in added])
    manifest.sha256 = sha256(manifest.content)
    assert len(publisher(None).rows()) == len(old) + len(added)
    assert first.published_at and second.published_at
    first.published_at = second.published_at - timedelta(hours=5)
    assert len(publisher(None).rows()) == len(added)
