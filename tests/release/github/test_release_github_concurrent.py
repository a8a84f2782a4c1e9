"""Two publishes at once, and a token that expires: at whatever request, nothing is lost and nothing is un-yanked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import requests

from fake_github import TOKEN, FakeGitHub
from fake_github.hub import Hub
from fake_github.outcome import Added, assert_published, sha256
from fake_github.repository import OWNER_REPO
from release_factory import additions, flash_attn_wheel
from wheelfactory.core.errors import PublishError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.publisher import GitHubPublisher
from wheelfactory.release.github.releases import Releases
from wheelfactory.release.manifest import manifest_bytes
from wheelfactory.release.transaction import publish, yank

Change: TypeAlias = Callable[[GitHubPublisher], object]

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


class Race:
    """A published wheel that one run yanks, while another publishes more."""

    def __init__(self, hub: Hub, old: Added) -> None:
        self.hub, self.old, self.name = hub, old, old[0][0].filename

    def reset(self) -> None:
        """Publish only the old wheel."""
        a_second = self.hub.repository.a_second
        self.hub.github.fresh().repository.a_second = a_second
        self.hub.publish("v1", self.old)

    def yank(self, one: GitHubPublisher) -> None:
        yank(one, self.name, REASON)

    def publish(self, one: GitHubPublisher) -> None:
        publish(one, self.hub.added)

    def interrupted(self) -> tuple[InterruptedClient, GitHubPublisher]:
        """A publisher after a reset, and its client."""
        self.reset()
        client = InterruptedClient(self.hub.github)
        return client, GitHubPublisher(Releases(client), "v2")

    def methods_of(self, change: Change) -> list[str]:
        """The methods of the requests of an undisturbed change."""
        client, publisher = self.interrupted()
        change(publisher)
        return client.methods

    def assert_both(self) -> None:
        """Assert that the old wheels are yanked and the added ones published."""
        yanked = [row.model_copy(update={"yanked": REASON}) for row, _ in self.old]
        assert_published(self.hub.repository, [*yanked, *self.hub.rows])


@pytest.fixture
def race(hub: Hub, tmp_path: Path) -> Race:
    hub.added = hub.added[:1]
    return Race(hub, additions([flash_attn_wheel(tmp_path / "old", YANKED_CELL)]))


@pytest.fixture(params=[pytest.param(1, id="each second"), pytest.param(10, id="same second", marks=pytest.mark.slow)])
def _seconds(github: FakeGitHub, request: pytest.FixtureRequest) -> None:
    """Each release is published in a second of its own, or all in the same one."""
    github.repository.a_second = request.param


@pytest.mark.usefixtures("_seconds")
@pytest.mark.parametrize("yank_interrupts", [True, False], ids=["yank during a publish", "publish during a yank"])
def test_two_publishes_at_once_end_with_both_changes(race: Race, yank_interrupts: bool) -> None:
    run, other = (race.publish, race.yank) if yank_interrupts else (race.yank, race.publish)
    count = len(race.methods_of(run))
    assert count > 8
    for number in range(count):
        client, first = race.interrupted()

        def before(now: int, number: int = number) -> None:
            if now == number:
                other(race.hub.publisher("other"))

        client.before = before
        run(first)
        assert len(client.methods) > number
        race.assert_both()


@pytest.mark.slow
@pytest.mark.parametrize("yank_interrupts", [True, False], ids=["yank during a publish", "publish during a yank"])
def test_two_publishes_under_one_tag_end_with_both_changes_or_an_error_that_a_rerun_repairs(
    race: Race, yank_interrupts: bool
) -> None:
    run, other = (race.publish, race.yank) if yank_interrupts else (race.yank, race.publish)
    refused: list[Change] = []

    def attempt(change: Change, one: GitHubPublisher) -> None:
        try:
            change(one)
        except PublishError:
            refused.append(change)

    for number in range(len(race.methods_of(run))):
        client, first = race.interrupted()

        def before(now: int, number: int = number) -> None:
            if now == number:
                attempt(other, race.hub.publisher("v2"))

        client.before = before
        attempt(run, first)
        while refused:
            refused.pop(0)(race.hub.publisher("v2"))
        race.assert_both()


def test_a_yank_under_the_tag_of_staged_wheels_is_refused(race: Race, added: Added) -> None:
    race.reset()
    race.hub.added = added
    race.hub.stage(tag="v2")
    (draft,) = race.hub.repository.drafts()
    files = draft.files()
    with pytest.raises(PublishError, match=r"wheels are staged under this tag: v2 has .*\.whl and 2 more") as refused:
        race.yank(race.hub.publisher("v2"))
    assert "another --tag" in refused.value.hint
    assert [draft.files() for draft in race.hub.repository.drafts()] == [files]
    race.yank(race.hub.publisher("yank-1"))
    publish(race.hub.publisher("v2"), [(row, None) for row, _ in added])
    race.assert_both()


def test_a_publish_that_is_found_before_publishing_needs_no_second_release(race: Race) -> None:
    race.hub.repository.a_second = 1  # in the same second the other release can win
    methods = race.methods_of(race.publish)
    last_upload = max(number for number, method in enumerate(methods) if method == "POST")
    client, first = race.interrupted()

    def before(number: int) -> None:
        if number == last_upload:
            race.yank(race.hub.publisher("yank-1"))

    client.before = before
    race.publish(first)
    assert set(race.hub.tags()) == {"v1", "yank-1", "v2"}


@pytest.mark.usefixtures("_seconds")
def test_a_token_that_expires_while_another_run_yanks(race: Race) -> None:
    # a token that expires after the last request is not missed
    for number in range(len(race.methods_of(race.publish)) - 1):
        client, first = race.interrupted()

        def before(now: int, client: InterruptedClient = client, number: int = number) -> None:
            if now == number:
                race.yank(race.hub.publisher("yank-1"))
            if now > number:
                client.expire()

        client.before = before
        with pytest.raises(PublishError, match="GitHub does not accept the token"):
            race.publish(first)
        assert {row.filename: row.yanked for row in race.hub.publisher(None, None).rows()}[race.name] == REASON
        race.publish(race.hub.publisher("v2"))
        race.assert_both()


def test_rows_of_a_manifest_published_long_before_are_not_merged(race: Race) -> None:
    race.reset()
    race.hub.publish("v2")
    first, second = race.hub.repository.published()
    (manifest,) = (one for one in second.assets.values() if one.name == MANIFEST_NAME)
    manifest.content = manifest_bytes(race.hub.rows)
    manifest.sha256 = sha256(manifest.content)
    assert len(race.hub.publisher(None).rows()) == 2
    assert first.published_at and second.published_at
    first.published_at = second.published_at - timedelta(hours=5)
    assert len(race.hub.publisher(None).rows()) == 1
