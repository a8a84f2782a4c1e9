"""Kernel archives in releases of their own: uploaded once, found by name, never mixed with wheels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fake_github import TOKEN, FakeGitHub
from fake_github.faults import FAULTS, Fault
from fake_github.outcome import sha256
from fake_github.repository import OWNER_REPO
from wheelfactory.core.errors import PublishError
from wheelfactory.kernels.archive_host import ArchiveHost
from wheelfactory.release.github import parts
from wheelfactory.release.github.archive_host import GitHubArchiveHost
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.releases import Releases

NAME = "kernels-fa2.8.3-rocm7.2-ck-0123456789ab"
CONTENT = b"an archive"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "made" / "fa2.8.3-rocm7.2-ck.kernels.tar"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def new_archive_host(github: FakeGitHub) -> Callable[[], ArchiveHost]:
    """Creates an archive host with an empty cache, like a new process."""

    def make() -> ArchiveHost:
        client = Client(github.repository.api, OWNER_REPO, TOKEN, clock=github.clock, sleep=github.clock.sleep)
        return GitHubArchiveHost(Releases(client))

    return make


@pytest.fixture
def archive_host(new_archive_host: Callable[[], ArchiveHost]) -> ArchiveHost:
    return new_archive_host()


def assert_kept(github: FakeGitHub, archive: Path) -> None:
    (release,) = github.repository.published()
    assert (release.tag, release.prerelease, release.latest) == (NAME, True, False)
    assert release.files() == {archive.name: sha256(CONTENT)}
    assert github.repository.drafts() == []


def test_an_archive_is_a_prerelease_of_its_own(github: FakeGitHub, archive_host: ArchiveHost, archive: Path) -> None:
    assert not archive_host.has(NAME)
    archive_host.upload(NAME, archive)
    assert archive_host.has(NAME)
    assert_kept(github, archive)


def test_it_is_taken_whole_without_a_token(
    github: FakeGitHub, archive_host: ArchiveHost, archive: Path, tmp_path: Path
) -> None:
    archive_host.upload(NAME, archive)
    reading = GitHubArchiveHost(Releases(Client(github.repository.api, OWNER_REPO, None)))
    downloaded = reading.download(NAME, tmp_path / "downloaded")
    assert downloaded == tmp_path / "downloaded" / archive.name
    assert downloaded.read_bytes() == CONTENT


def test_a_missing_archive_is_not_downloaded(archive_host: ArchiveHost, tmp_path: Path) -> None:
    assert archive_host.download(NAME, tmp_path / "downloaded") is None
    assert not (tmp_path / "downloaded").exists()


def test_the_same_archive_again_changes_nothing(github: FakeGitHub, archive_host: ArchiveHost, archive: Path) -> None:
    archive_host.upload(NAME, archive)
    before = len(github.calls)
    archive_host.upload(NAME, archive)
    assert all(call.startswith("GET") for call in github.calls[before:])


def test_another_archive_does_not_replace_it(github: FakeGitHub, archive_host: ArchiveHost, archive: Path) -> None:
    archive_host.upload(NAME, archive)
    archive.write_bytes(b"another")
    with pytest.raises(PublishError, match="another archive is already stored"):
        archive_host.upload(NAME, archive)
    assert_kept(github, archive)


def test_a_damaged_archive_is_not_taken(
    github: FakeGitHub, archive_host: ArchiveHost, archive: Path, tmp_path: Path
) -> None:
    archive_host.upload(NAME, archive)
    (release,) = github.repository.published()
    next(iter(release.assets.values())).content = b"damaged"
    with pytest.raises(PublishError, match="damaged during the download"):
        archive_host.download(NAME, tmp_path / "downloaded")
    assert list((tmp_path / "downloaded").iterdir()) == []


def test_a_release_without_its_archive_is_an_error(
    github: FakeGitHub, archive_host: ArchiveHost, archive: Path
) -> None:
    github.repository.create({"tag_name": NAME, "draft": False, "prerelease": True})
    for use in (lambda: archive_host.has(NAME), lambda: archive_host.upload(NAME, archive)):
        with pytest.raises(PublishError, match=f"not a single kernel archive: release {NAME} has 0 files") as refused:
            use()
        assert "delete that release" in refused.value.hint


def test_a_large_archive_is_refused_before_uploading(
    github: FakeGitHub, archive_host: ArchiveHost, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ASSET_BYTES", len(CONTENT))
    with pytest.raises(PublishError, match="too large for a release"):
        archive_host.upload(NAME, archive)
    assert github.calls == []


def test_leftovers_of_earlier_runs_are_deleted(github: FakeGitHub, archive_host: ArchiveHost, archive: Path) -> None:
    for _ in range(2):
        draft = github.repository.create({"tag_name": NAME, "draft": True, "prerelease": True})
        github.repository.upload(draft.id, "half.tar", 0, None, None)
    archive_host.upload(NAME, archive)
    assert_kept(github, archive)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.kills], ids=lambda fault: fault.name)
def test_an_upload_survives_a_fault_at_any_request(
    fault: Fault, github: FakeGitHub, new_archive_host: Callable[[], ArchiveHost], archive: Path
) -> None:
    new_archive_host().upload(NAME, archive)
    for number, call in enumerate(list(github.calls)):
        if (fault.uploads_only and "/assets " not in call) or (fault.changes_only and call.startswith("GET")):
            continue
        github.fresh().failing = (number, fault)
        new_archive_host().upload(NAME, archive)
        assert github.failing is None
        assert_kept(github, archive)
