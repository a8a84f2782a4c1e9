"""Kernel archives in releases of their own: published once and attested, found by name, never mixed with wheels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from fake_github import TOKEN, FakeGitHub
from fake_github.faults import FAULTS, Fault
from fake_github.outcome import content_of, sha256
from fake_github.repository import OWNER_REPO
from fake_sigstore import KERNELS, FakeSigstore, other
from wheelfactory.core.errors import InputError, PublishError, VerificationError
from wheelfactory.release import bundle as bundles
from wheelfactory.release.github import archive_host as archive_hosts
from wheelfactory.release.github.archive_host import GitHubArchiveHost
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.releases import Releases

NAME = "kernels-fa2.8.3-rocm7.2-ck-0123456789ab"
CONTENT = b"an archive"
HOME = "https://github.com/someone/wheels/.github/workflows"

pytestmark = pytest.mark.usefixtures("_trusted")

NewArchiveHost: TypeAlias = Callable[[], GitHubArchiveHost]


class KilledError(BaseException):
    """The process ends at a request."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "made" / "fa2.8.3-rocm7.2-ck.kernels.tar"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def bundle(archive: Path, sigstore: FakeSigstore) -> bytes:
    """What the workflow signs for the archive."""
    return sigstore.sign({archive.name: sha256(CONTENT)}, KERNELS)


@pytest.fixture
def new_archive_host(github: FakeGitHub) -> NewArchiveHost:
    """Creates an archive host with an empty cache, like a new process."""

    def make() -> GitHubArchiveHost:
        client = Client(github.repository.api, OWNER_REPO, TOKEN, clock=github.clock, sleep=github.clock.sleep)
        return GitHubArchiveHost(Releases(client))

    return make


@pytest.fixture
def archive_host(new_archive_host: NewArchiveHost) -> GitHubArchiveHost:
    return new_archive_host()


@pytest.fixture
def store(new_archive_host: NewArchiveHost, archive: Path, sigstore: FakeSigstore) -> Callable[[], None]:
    """Uploads, attests and publishes the archive, as the steps of one job do."""

    def run() -> None:
        unattested = new_archive_host().upload(NAME, archive)
        if unattested:
            signed = sigstore.sign({**unattested, "another.tar": "0" * 64}, KERNELS)
            new_archive_host().publish(NAME, archive.name, unattested[archive.name], signed)

    return run


def publish_release(github: FakeGitHub, files: Mapping[str, bytes]) -> None:
    """Publish a release under the archive's name by hand; write access is enough for it."""
    release = github.repository.create({"tag_name": NAME, "draft": True, "prerelease": True})
    for name, content in files.items():
        github.repository.upload(release.id, name, len(content), sha256(content), content)
    github.repository.edit(release.id, {"draft": False})


def assert_kept(github: FakeGitHub, archive: Path) -> None:
    (release,) = github.repository.published()
    assert (release.tag, release.prerelease, release.latest) == (NAME, True, False)
    beside = f"{archive.name}.sigstore.json"
    assert release.files() == {archive.name: sha256(CONTENT), beside: sha256(content_of(release, beside))}
    assert github.repository.drafts() == []


def assert_refused(archive_host: GitHubArchiveHost, folder: Path, *texts: str) -> None:
    """Assert that the archive neither counts as stored nor is downloaded, with the reason and the next step."""
    for use in (lambda: archive_host.has(NAME), lambda: archive_host.download(NAME, folder / "downloaded")):
        with pytest.raises(VerificationError) as refused:
            use()
        assert [text for text in texts if text not in str(refused.value)] == []
        assert "compile the set again: wheelfactory kernels SET" in refused.value.hint
    assert not list(folder.glob("downloaded/*"))


def test_an_uploaded_archive_counts_as_stored_once_it_is_published_with_its_attestation(
    github: FakeGitHub, archive_host: GitHubArchiveHost, archive: Path, bundle: bytes
) -> None:
    assert archive_host.upload(NAME, archive) == {archive.name: sha256(CONTENT)}
    assert not archive_host.has(NAME)
    assert github.repository.published() == []
    archive_host.publish(NAME, archive.name, sha256(CONTENT), bundle)
    assert archive_host.has(NAME)
    assert_kept(github, archive)


def test_a_stored_archive_is_downloaded_without_a_token(
    github: FakeGitHub, store: Callable[[], None], archive: Path, tmp_path: Path
) -> None:
    store()
    reading = GitHubArchiveHost(Releases(Client(github.repository.api, OWNER_REPO, None)))
    downloaded = reading.download(NAME, tmp_path / "downloaded")
    assert downloaded == tmp_path / "downloaded" / archive.name
    assert downloaded.read_bytes() == CONTENT


def test_a_missing_archive_is_not_downloaded(archive_host: GitHubArchiveHost, tmp_path: Path) -> None:
    assert archive_host.download(NAME, tmp_path / "downloaded") is None
    assert not (tmp_path / "downloaded").exists()


def test_the_same_archive_again_changes_nothing(
    github: FakeGitHub, archive_host: GitHubArchiveHost, store: Callable[[], None], archive: Path, bundle: bytes
) -> None:
    store()
    before = len(github.calls)
    assert archive_host.upload(NAME, archive) == {}
    archive_host.publish(NAME, archive.name, sha256(CONTENT), bundle)
    assert all(call.startswith("GET") for call in github.calls[before:])


def test_another_archive_does_not_replace_it(
    github: FakeGitHub, archive_host: GitHubArchiveHost, store: Callable[[], None], archive: Path
) -> None:
    store()
    archive.write_bytes(b"another")
    with pytest.raises(PublishError, match="another archive is already stored"):
        archive_host.upload(NAME, archive)
    assert_kept(github, archive)


# provenance


def test_an_archive_without_a_bundle_is_refused(
    github: FakeGitHub, archive_host: GitHubArchiveHost, archive: Path, tmp_path: Path
) -> None:
    publish_release(github, {archive.name: CONTENT})
    missing = f"{archive.name}.sigstore.json"
    assert_refused(archive_host, tmp_path, f"without an attestation: release {NAME} has no {missing}")
    with pytest.raises(VerificationError):
        archive_host.upload(NAME, archive)


def test_the_bundle_of_another_workflow_is_refused(
    github: FakeGitHub, archive_host: GitHubArchiveHost, archive: Path, sigstore: FakeSigstore, tmp_path: Path
) -> None:
    signed = sigstore.sign({archive.name: sha256(CONTENT)}, other())
    publish_release(github, {archive.name: CONTENT, f"{archive.name}.sigstore.json": signed})
    found = f"found {HOME}/_publish.yml@"
    assert_refused(archive_host, tmp_path, "not attested by this repository", "expected signed by ", found)


@pytest.mark.parametrize("with_digests", [True, False])
def test_a_changed_archive_is_refused(
    github: FakeGitHub,
    archive_host: GitHubArchiveHost,
    archive: Path,
    bundle: bytes,
    tmp_path: Path,
    with_digests: bool,
) -> None:
    github.repository.with_digests = with_digests
    publish_release(github, {archive.name: b"changed", f"{archive.name}.sigstore.json": bundle})
    assert_refused(archive_host, tmp_path, f"another sha256: {sha256(CONTENT)}")


def test_an_archive_that_is_damaged_in_storage_is_not_downloaded(
    github: FakeGitHub, archive_host: GitHubArchiveHost, store: Callable[[], None], archive: Path, tmp_path: Path
) -> None:
    store()
    (release,) = github.repository.published()
    next(asset for asset in release.assets.values() if asset.name == archive.name).content = b"damaged"
    with pytest.raises(PublishError, match="damaged during the download"):
        archive_host.download(NAME, tmp_path / "downloaded")
    assert list((tmp_path / "downloaded").iterdir()) == []


def test_a_download_that_differs_from_what_was_verified_is_dropped(
    github: FakeGitHub,
    archive_host: GitHubArchiveHost,
    store: Callable[[], None],
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GitHub states no digest, so the archive is downloaded to be verified, and then once more."""
    store()
    github.repository.with_digests = False

    download = Client.download

    def damage_second(client: Client, url: str, path: Path, public_url: str = "") -> None:
        download(client, url, path)
        if public_url.endswith(archive.name):
            path.write_bytes(b"damaged")

    monkeypatch.setattr(Client, "download", damage_second)
    with pytest.raises(PublishError, match="damaged during the download"):
        archive_host.download(NAME, tmp_path / "downloaded")
    assert list((tmp_path / "downloaded").iterdir()) == []


def test_a_private_repository_is_downloaded_from_through_the_api(
    github: FakeGitHub, archive_host: GitHubArchiveHost, store: Callable[[], None], tmp_path: Path
) -> None:
    store()
    github.repository.is_private = True
    found = archive_host.download(NAME, tmp_path)
    assert found and found.read_bytes() == CONTENT


def test_a_bundle_too_large_to_be_one_is_not_read(
    github: FakeGitHub,
    archive_host: GitHubArchiveHost,
    store: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store()
    monkeypatch.setattr(archive_hosts, "MAX_BUNDLE_BYTES", 100)
    before = len(github.calls)
    assert_refused(archive_host, tmp_path, "without an attestation", " bytes of ")
    assert not [call for call in github.calls[before:] if "/releases/assets/" in call]


def test_without_sigstore_no_stored_archive_is_used(
    archive_host: GitHubArchiveHost, store: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store()
    monkeypatch.setattr(bundles, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="sigstore is missing") as refused:
        archive_host.has(NAME)
    assert refused.value.hint.endswith("-m pip install sigstore")


def test_nothing_is_published_with_a_bundle_that_would_be_refused_later(
    github: FakeGitHub, archive_host: GitHubArchiveHost, archive: Path, sigstore: FakeSigstore
) -> None:
    archive_host.upload(NAME, archive)
    signed = sigstore.sign({archive.name: sha256(b"changed")}, KERNELS)
    with pytest.raises(VerificationError, match="not attested by this repository"):
        archive_host.publish(NAME, archive.name, sha256(CONTENT), signed)
    assert github.repository.published() == []
    (draft,) = github.repository.drafts()
    assert draft.files() == {archive.name: sha256(CONTENT)}


def test_a_draft_with_another_file_is_not_published(
    github: FakeGitHub, archive_host: GitHubArchiveHost, archive: Path, bundle: bytes
) -> None:
    archive_host.upload(NAME, archive)
    (draft,) = github.repository.drafts()
    github.repository.upload(draft.id, "more.tar", 4, sha256(b"more"), b"more")
    with pytest.raises(PublishError, match=r"missing, damaged or unexpected files: .*: more\.tar"):
        archive_host.publish(NAME, archive.name, sha256(CONTENT), bundle)
    assert github.repository.published() == []


def test_a_draft_that_somebody_changed_is_not_published(
    github: FakeGitHub, archive_host: GitHubArchiveHost, new_archive_host: NewArchiveHost, archive: Path, bundle: bytes
) -> None:
    archive_host.upload(NAME, archive)
    (draft,) = github.repository.drafts()
    (asset,) = draft.assets.values()
    asset.content, asset.sha256 = b"changed", sha256(b"changed")
    error = f"kernel archive not uploaded: no draft of {NAME} has {archive.name} with"
    with pytest.raises(PublishError, match=error) as refused:
        new_archive_host().publish(NAME, archive.name, sha256(CONTENT), bundle)
    assert "`ci collect` again" in refused.value.hint
    assert github.repository.published() == []


# interruptions


def test_a_release_without_its_archive_is_an_error(
    github: FakeGitHub, archive_host: GitHubArchiveHost, archive: Path
) -> None:
    github.repository.create({"tag_name": NAME, "draft": False, "prerelease": True})
    for use in (lambda: archive_host.has(NAME), lambda: archive_host.upload(NAME, archive)):
        with pytest.raises(PublishError, match=f"not a single kernel archive: release {NAME} has 0 files") as refused:
            use()
        assert "delete that release" in refused.value.hint


def test_leftovers_of_earlier_runs_are_deleted(github: FakeGitHub, store: Callable[[], None], archive: Path) -> None:
    for _ in range(2):
        draft = github.repository.create({"tag_name": NAME, "draft": True, "prerelease": True})
        github.repository.upload(draft.id, "half.tar", 0, None, None)
        github.repository.upload(draft.id, f"{archive.name}.sigstore.json", 3, sha256(b"old"), b"old")
    store()
    assert_kept(github, archive)


def test_a_rerun_after_a_kill_at_any_request_ends_with_one_complete_set(
    github: FakeGitHub,
    store: Callable[[], None],
    archive: Path,
    new_archive_host: NewArchiveHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After GitHub did the request; before it is the same state as after the one before."""
    store()
    exchange = Client._exchange
    for number in range(len(github.calls)):
        github.fresh()

        def until_killed(client: Client, *request: Any, last: int = number, **options: Any) -> Any:
            try:
                return exchange(client, *request, **options)
            finally:
                if len(github.calls) == last + 1:
                    raise KilledError

        monkeypatch.setattr(Client, "_exchange", until_killed)
        with pytest.raises(KilledError):
            store()
        monkeypatch.setattr(Client, "_exchange", exchange)
        is_complete = bool(github.repository.published())
        assert new_archive_host().has(NAME) is is_complete, "an incomplete set must not count as stored"
        store()
        assert_kept(github, archive)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.kills], ids=lambda fault: fault.name)
def test_storing_survives_a_fault_at_any_request(
    fault: Fault, github: FakeGitHub, store: Callable[[], None], archive: Path
) -> None:
    store()
    for number, call in enumerate(list(github.calls)):
        if (fault.uploads_only and "/assets " not in call) or (fault.changes_only and call.startswith("GET")):
            continue
        github.fresh().failing = (number, fault)
        store()
        assert github.failing is None
        assert_kept(github, archive)
