"""The commit of new tags: that of the workflow run, unless GitHub does not let its token tag it."""

from __future__ import annotations

import logging

import pytest

from fake_github import FakeGitHub
from fake_github.outcome import Added, assert_published
from fake_github.repository import OWNER_REPO
from fake_sigstore import KERNELS, FakeSigstore
from wheelfactory.commands.targets import open_attested_archive_host, open_publisher
from wheelfactory.core.errors import PublishError
from wheelfactory.release.github import drafts
from wheelfactory.release.transaction import publish, yank

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GITHUB = f"github:{OWNER_REPO}"


@pytest.fixture
def environ(github: FakeGitHub) -> dict[str, str]:
    """The environment of a job."""
    return {**github.environ(), "GITHUB_REPOSITORY": OWNER_REPO.title(), "GITHUB_SHA": COMMIT}


def targets(github: FakeGitHub) -> dict[str, str]:
    return {release.tag: release.target for release in github.repository.published()}


@pytest.mark.usefixtures("_trusted")
def test_a_new_tag_is_at_the_commit_of_the_run(
    github: FakeGitHub, environ: dict[str, str], added: Added, sigstore: FakeSigstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MAX_WHEELS", 2)
    publish(open_publisher(GITHUB, environ, tag="v1"), added)
    yank(open_publisher(GITHUB, environ, tag="yank-1"), added[0][0].filename, "wrong kernels")
    host = open_attested_archive_host(GITHUB, environ)
    for name, sha256 in host.upload("kernels-a", added[0][1]).items():
        host.publish("kernels-a", name, sha256, sigstore.sign({name: sha256}, KERNELS))
    assert targets(github) == dict.fromkeys(("v1", "wheels-v1-2", "yank-1", "kernels-a"), COMMIT)


@pytest.mark.parametrize(
    "changes", [{"GITHUB_SHA": "", "GITHUB_REPOSITORY": ""}, {"GITHUB_REPOSITORY": "someone/factory"}]
)
def test_elsewhere_a_new_tag_is_at_the_default_branch_and_a_known_one_stays(
    github: FakeGitHub, environ: dict[str, str], added: Added, changes: dict[str, str]
) -> None:
    github.repository.default_branch = "trunk"
    github.repository.tags["v1"] = "f" * 40
    publish(open_publisher(GITHUB, {**environ, **changes}, tag="v1"), added)
    assert targets(github) == {"v1": "trunk"}  # GitHub ignores it for a tag that exists
    assert github.repository.tags["v1"] == "f" * 40


def test_a_tag_that_moved_since_the_build_is_refused_before_anything_is_published(
    github: FakeGitHub, environ: dict[str, str], added: Added
) -> None:
    github.repository.tags["v1"] = "f" * 40
    with pytest.raises(PublishError, match=f"the tag moved since the build: v1: built {COMMIT}, now {'f' * 40}"):
        publish(open_publisher(GITHUB, environ, tag="v1"), added)
    assert github.repository.published() == []
    environ["GITHUB_SHA"] = "f" * 40
    publish(open_publisher(GITHUB, environ, tag="v1"), added)
    assert_published(github.repository, [row for row, _ in added])


def test_a_commit_that_the_token_must_not_tag_is_left_out_with_a_warning(
    github: FakeGitHub, environ: dict[str, str], added: Added, caplog: pytest.LogCaptureFixture
) -> None:
    github.repository.protected = {COMMIT}
    with caplog.at_level(logging.WARNING, "wheelfactory"):
        publish(open_publisher(GITHUB, environ, tag="v1"), added)
    assert_published(github.repository, [row for row, _ in added])
    assert targets(github) == {"v1": "main"}
    (warning,) = caplog.messages
    assert warning.startswith(f"v1: if this tag is new, it is not at commit {COMMIT} but at the default branch: ")


def test_another_refusal_stays_an_error_without_that_warning(
    github: FakeGitHub, environ: dict[str, str], added: Added, caplog: pytest.LogCaptureFixture
) -> None:
    github.repository.burned.add("v1")
    with pytest.raises(PublishError, match="tag_name was used by an immutable release"):
        publish(open_publisher(GITHUB, environ, tag="v1"), added)
    assert caplog.messages == []
