"""What the tests of publishing have at hand: a GitHub, the wheels of a run, and publishers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fake_github.github import TOKEN, FakeGitHub
from fake_github.outcome import Added, assert_published
from fake_github.repository import OWNER_REPO, Repository
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.publisher import GitHubPublisher
from wheelfactory.release.github.releases import Releases
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.transaction import Addition, publish, stage


@dataclass
class Hub:
    """A GitHub, what a run adds to it, and publishers as new processes have them."""

    github: FakeGitHub
    added: Added

    def publisher(self, tag: str | None = "v1", token: str | None = TOKEN) -> GitHubPublisher:
        """A publisher with nothing read yet."""
        client = Client(self.repository.api, OWNER_REPO, token, clock=self.github.clock, sleep=self.github.clock.sleep)
        return GitHubPublisher(Releases(client), tag)

    def publish(self, tag: str = "v1", added: Iterable[Addition] | None = None) -> tuple[WheelRow, ...]:
        """Publish some wheels, or those of the run."""
        return publish(self.publisher(tag), self.added if added is None else added)

    def publish_staged(self, added: Added | None = None) -> tuple[WheelRow, ...]:
        """Publish staged wheels, or those of the run, as a process without their files."""
        return self.publish(added=[(row, None) for row, _ in (self.added if added is None else added)])

    def stage(self, added: Added | None = None, tag: str = "v1") -> None:
        stage(self.publisher(tag), self.added if added is None else added)

    @property
    def repository(self) -> Repository:
        return self.github.repository

    @property
    def rows(self) -> list[WheelRow]:
        return [row for row, _ in self.added]

    def assert_published(self, *others: Added) -> None:
        """Assert that the wheels of the run and others are published, and nothing else."""
        assert_published(self.repository, [*self.rows, *(row for added in others for row, _ in added)])

    def tags(self) -> list[str]:
        return [release.tag for release in self.repository.published()]

    def changes(self) -> list[str]:
        """The requests so far that change something."""
        return [call for call in self.github.calls if not call.startswith("GET")]
