"""Kernel archives in releases of their own: published once and attested, found by name, never mixed with wheels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
FILE, BUNDLE = "fa2.8.3-rocm7.2-ck.kernels.tar", "fa2.8.3-rocm7.2-ck.kernels.tar.sigstore.json"
CONTENT = b"an archive"
DIGEST = sha256(CONTENT)
HOME = "https://github.com/someone/wheels/.github/workflows"

pytestmark = pytest.mark.usefixtures("_trusted")


class KilledError(BaseException):
    """The process ends at a request."""


@dataclass
class Place:
    """An archive, and a GitHub that it is stored on."""

    github: FakeGitHub
    sigstore: FakeSigstore
    archive: Path
    downloads: Path

    def host(self, token: str | None = TOKEN) -> GitHubArchiveHost:
        """An archive host with an empty cache, like a new process."""
        clock = self.github.clock
        return GitHubArchiveHost(
            Releases(Client(self.github.repository.api, OWNER_REPO, token, clock=clock, sleep=clock.sleep))
        )

    def bundle(self) -> bytes:
        """What the workflow signs for the archive."""
        return self.sigstore.sign({FILE: DIGEST}, KERNELS)

    def store(self) -> None:
        """Upload, attest and publish the archive, as the steps of one job do."""
        unattested = self.host().upload(NAME, self.archive)
        if unattested:
            signed = self.sigstore.sign({**unattested, "another.tar": "0" * 64}, KERNELS)
            self.host().publish(NAME, FILE, unattested[FILE], signed)

    def publish(self, **files: bytes) -> None:
        """Publish a release under the archive's name by hand; write access is enough for it."""
        repository = self.github.repository
        release = repository.create({"tag_name": NAME, "draft": True, "prerelease": True})
        for name, content in files.items():
            repository.upload(release.id, name, len(content), sha256(content), content)
        repository.edit(release.id, {"draft": False})

    def download(self) -> Path | None:
        return self.host().download(NAME, self.downloads)

    def assert_kept(self) -> None:
        (release,) = self.github.repository.published()
        assert (release.tag, release.prerelease, release.latest) == (NAME, True, False)
        assert release.files() == {FILE: DIGEST, BUNDLE: sha256(content_of(release, BUNDLE))}
        assert self.github.repository.drafts() == []

    def assert_refused(self, *texts: str) -> None:
        """Assert that the archive neither counts as stored nor is downloaded, with the reason and the next step."""
        for use in (lambda: self.host().has(NAME), self.download):
            with pytest.raises(VerificationError) as refused:
                use()
            assert [text for text in texts if text not in str(refused.value)] == []
            assert "compile the set again: wheelfactory kernels SET" in refused.value.hint
        assert not list(self.downloads.glob("*"))


@pytest.fixture
def place(github: FakeGitHub, sigstore: FakeSigstore, tmp_path: Path) -> Place:
    archive = tmp_path / FILE
    archive.write_bytes(CONTENT)
    return Place(github, sigstore, archive, tmp_path / "downloads")


def changes(calls: Iterable[str]) -> list[str]:
    """The requests that change something."""
    return [call for call in calls if not call.startswith("GET")]


def test_an_uploaded_archive_counts_as_stored_once_it_is_published_with_its_attestation(place: Place) -> None:
    host = place.host()
    assert place.download() is None
    assert not place.downloads.exists()
    assert host.upload(NAME, place.archive) == {FILE: DIGEST}
    assert not host.has(NAME)
    assert place.github.repository.published() == []
    host.publish(NAME, FILE, DIGEST, place.bundle())
    assert host.has(NAME)
    place.assert_kept()


def test_a_stored_archive_is_downloaded_without_a_token_and_from_a_private_repository_with_one(place: Place) -> None:
    place.store()
    downloaded = place.host(None).download(NAME, place.downloads)
    assert downloaded == place.downloads / FILE
    assert downloaded.read_bytes() == CONTENT
    place.github.repository.is_private = True
    found = place.download()
    assert found and found.read_bytes() == CONTENT


def test_the_same_archive_again_changes_nothing_and_another_does_not_replace_it(place: Place) -> None:
    place.store()
    before = changes(place.github.calls)
    assert place.host().upload(NAME, place.archive) == {}
    place.host().publish(NAME, FILE, DIGEST, place.bundle())
    assert changes(place.github.calls) == before
    place.archive.write_bytes(b"another")
    with pytest.raises(PublishError, match="another archive is already stored"):
        place.host().upload(NAME, place.archive)
    place.assert_kept()


# provenance


def test_an_archive_without_a_bundle_is_refused(place: Place) -> None:
    place.publish(**{FILE: CONTENT})
    place.assert_refused(f"without an attestation: release {NAME} has no {BUNDLE}")
    with pytest.raises(VerificationError):
        place.host().upload(NAME, place.archive)


def test_the_bundle_of_another_workflow_is_refused(place: Place) -> None:
    place.publish(**{FILE: CONTENT, BUNDLE: place.sigstore.sign({FILE: DIGEST}, other())})
    place.assert_refused("not attested by this repository", "expected signed by ", f"found {HOME}/_publish.yml@")


@pytest.mark.parametrize("with_digests", [True, False])
def test_a_changed_archive_is_refused(place: Place, with_digests: bool) -> None:
    place.github.repository.with_digests = with_digests
    place.publish(**{FILE: b"changed", BUNDLE: place.bundle()})
    place.assert_refused(f"another sha256: {DIGEST}")


@pytest.mark.parametrize("with_digests", [True, False])
def test_an_archive_that_is_damaged_after_it_was_verified_is_dropped(
    place: Place, monkeypatch: pytest.MonkeyPatch, with_digests: bool
) -> None:
    """Without a digest from GitHub the archive is downloaded to be verified, and then once more."""
    place.store()
    place.github.repository.with_digests = with_digests
    download = Client.download

    def damage_second(client: Client, url: str, path: Path, public_url: str = "") -> None:
        download(client, url, path)
        if public_url.endswith(FILE):
            path.write_bytes(b"damaged")

    monkeypatch.setattr(Client, "download", damage_second)
    with pytest.raises(PublishError, match="damaged during the download"):
        place.download()
    assert list(place.downloads.iterdir()) == []


def test_a_bundle_too_large_to_be_one_is_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.store()
    monkeypatch.setattr(archive_hosts, "MAX_BUNDLE_BYTES", 100)
    before = len(place.github.calls)
    place.assert_refused("without an attestation", " bytes of ")
    assert not [call for call in place.github.calls[before:] if "/releases/assets/" in call]


def test_without_sigstore_no_stored_archive_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.store()
    monkeypatch.setattr(bundles, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="sigstore is missing") as refused:
        place.host().has(NAME)
    assert refused.value.hint.endswith("-m pip install sigstore")


def test_nothing_is_published_with_a_bundle_that_would_be_refused_later(place: Place) -> None:
    place.host().upload(NAME, place.archive)
    signed = place.sigstore.sign({FILE: sha256(b"changed")}, KERNELS)
    with pytest.raises(VerificationError, match="not attested by this repository"):
        place.host().publish(NAME, FILE, DIGEST, signed)
    assert place.github.repository.published() == []
    (draft,) = place.github.repository.drafts()
    assert draft.files() == {FILE: DIGEST}


def test_a_draft_with_another_file_is_not_published(place: Place) -> None:
    place.host().upload(NAME, place.archive)
    (draft,) = place.github.repository.drafts()
    place.github.repository.upload(draft.id, "more.tar", 4, sha256(b"more"), b"more")
    with pytest.raises(PublishError, match=r"missing, damaged or unexpected files: .*: more\.tar"):
        place.host().publish(NAME, FILE, DIGEST, place.bundle())
    assert place.github.repository.published() == []


def test_a_draft_that_somebody_changed_is_not_published(place: Place) -> None:
    place.host().upload(NAME, place.archive)
    (draft,) = place.github.repository.drafts()
    (asset,) = draft.assets.values()
    asset.content, asset.sha256 = b"changed", sha256(b"changed")
    with pytest.raises(PublishError, match=f"kernel archive not uploaded: no draft of {NAME} has {FILE}") as refused:
        place.host().publish(NAME, FILE, DIGEST, place.bundle())
    assert "`ci collect` again" in refused.value.hint
    assert place.github.repository.published() == []


# interruptions


def test_a_release_without_its_archive_is_an_error(place: Place) -> None:
    place.publish()
    for use in (lambda: place.host().has(NAME), lambda: place.host().upload(NAME, place.archive)):
        with pytest.raises(PublishError, match=f"not a single kernel archive: release {NAME} has 0 files") as refused:
            use()
        assert "delete that release" in refused.value.hint


def test_leftovers_of_earlier_runs_are_deleted(place: Place) -> None:
    for _ in range(2):
        draft = place.github.repository.create({"tag_name": NAME, "draft": True, "prerelease": True})
        place.github.repository.upload(draft.id, "half.tar", 0, None, None)
        place.github.repository.upload(draft.id, BUNDLE, 3, sha256(b"old"), b"old")
    place.store()
    place.assert_kept()


def test_a_rerun_after_a_kill_at_any_request_ends_with_one_complete_set(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After GitHub did the request; before it is the same state as after the one before."""
    place.store()
    exchange = Client._exchange
    for number in range(len(place.github.calls)):
        place.github.fresh()

        def until_killed(client: Client, *request: Any, last: int = number, **options: Any) -> Any:
            try:
                return exchange(client, *request, **options)
            finally:
                if len(place.github.calls) == last + 1:
                    raise KilledError

        monkeypatch.setattr(Client, "_exchange", until_killed)
        with pytest.raises(KilledError):
            place.store()
        monkeypatch.setattr(Client, "_exchange", exchange)
        is_complete = bool(place.github.repository.published())
        assert place.host().has(NAME) is is_complete, "an incomplete set must not count as stored"
        place.store()
        place.assert_kept()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.kills], ids=lambda fault: fault.name)
def test_storing_survives_a_fault_at_any_request(place: Place, fault: Fault) -> None:
    place.store()
    for number in [number for number, call in enumerate(place.github.calls) if fault.hits(call)]:
        place.github.fresh().failing = (number, fault)
        place.store()
        assert place.github.failing is None
        place.assert_kept()
