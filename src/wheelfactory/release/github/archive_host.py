"""Store kernel archives in a GitHub repository: one prerelease per archive, with its attestation as the other asset.

An archive is uploaded into a draft. The workflow attests it, and only then is the release published: an immutable
release takes no file afterwards, and a draft does not count as stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from wheelfactory.core.errors import PublishError, VerificationError
from wheelfactory.core.files import atomic_path, file_sha256
from wheelfactory.release.bundle import BUILD_WORKFLOW, BUNDLE_SUFFIX, MAX_BUNDLE_BYTES, require_sigstore
from wheelfactory.release.github.drafts import Draft, require_size
from wheelfactory.release.github.releases import Release, Releases, StoredAsset
from wheelfactory.release.transaction import Asset
from wheelfactory.verify.result import Status

_NOTES = "Compiled kernels of one kernel set, for `wheelfactory kernels --download`. Not installable."
_UNTRUSTED_HINT = (
    "find out who made this release, then delete it and its tag, and compile the set again: wheelfactory kernels SET "
    "(GitHub uses the tag of an immutable release only once: then increase CACHE_VERSION in kernels/kernel_set.py)"
)
_UNSIGNED_HINT = (
    "attest the file of `ci collect --unattested` in build.yml of a public repository: sigstore lacks the root of "
    "attestations in private ones"
)


class GitHubArchiveHost:
    """A `wheelfactory.kernels.storage.ArchiveHost` in a repository. The name of an archive is its release tag.

    Every published archive must be attested by `BUILD_WORKFLOW` of the repository; any other is refused.
    """

    def __init__(self, releases: Releases, signed_ref: str = "") -> None:
        """`signed_ref` is the value of `bundle.REF_VARIABLE`."""
        self._releases, self._signed_ref = releases, signed_ref

    def has(self, name: str) -> bool:
        """Whether an attested archive is published under this name. Raises as `_find_archive` does."""
        return self._find_archive(name) is not None

    def upload(self, name: str, archive: Path) -> dict[str, str]:
        """Upload an archive into a draft; return the sha256 to attest by file name, for `publish`.

        Does nothing, and returns nothing to attest, if the same bytes are published under this name already.
        Raises as `_find_archive` does, and `PublishError` if other bytes are published or the archive is too large.
        """
        asset = Asset.from_content(archive.name, archive)
        require_size(asset)
        if self._is_published(name, asset.name, asset.sha256):
            return {}
        draft = next(self._drafts(name), None) or Draft(self._releases, self._releases.create(name, prerelease=True))
        draft.keep_only({asset.name})
        draft.put_asset(asset)
        draft.require_assets({asset.name: asset.sha256})
        return {asset.name: asset.sha256}

    def publish(self, name: str, file: str, sha256: str, bundle: bytes) -> None:
        """Publish an archive that `upload` put into a draft, with a bundle that attests this file name and sha256.

        Does nothing if it is published already. Raises as `_find_archive` does, `PublishError` if the draft is missing
        or has other bytes, and `VerificationError`, before it changes anything, if the bundle does not attest the file.
        """
        self._require_attested(file, sha256, bundle, _UNSIGNED_HINT)
        if self._is_published(name, file, sha256):
            return

        # another process uploaded it, perhaps seconds ago, and GitHub's lists can be older
        def find_draft() -> Draft | None:
            return next((one for one in self._drafts(name) if one.has_assets({file: sha256})), None)

        draft = self._releases.client.poll(find_draft, bool)
        if draft is None:
            hint = "run `ci collect` again (re-run the job): it uploads the archive"
            which = f"no draft of {name} has {file} with sha256 {sha256}"
            raise PublishError("kernel archive not uploaded", which, hint)
        beside = Asset.from_content(f"{file}{BUNDLE_SUFFIX}", bundle)
        draft.put_asset(beside)
        draft.require_assets({file: sha256, beside.name: beside.sha256})
        self._releases.publish(draft.release, _NOTES, latest=False)
        # left by lost responses, and perhaps listed only now
        for left in self._drafts(name):
            self._releases.delete_draft(left.release)

    def download(self, name: str, folder: Path) -> Path | None:
        """Download an attested archive into `folder`; None if none is published under this name.

        Raises as `_find_archive` does, and `PublishError` if the downloaded file has another digest.
        """
        found = self._find_archive(name)
        if found is None:
            return None
        stored, sha256 = found
        path = folder / stored.name
        with atomic_path(path) as written:
            self._releases.download(stored, written)
            if file_sha256(written) != sha256:  # GitHub may state no digest, which `Releases.download` then skips
                raise PublishError("damaged during the download", stored.name, "run the same command again")
        return path

    def _is_published(self, name: str, file: str, sha256: str) -> bool:
        """Whether this archive is published under a name. Raises `PublishError` if another one is."""
        found = self._find_archive(name)
        if found is None:
            return False
        stored, stored_sha256 = found
        if (stored.name, stored_sha256) != (file, sha256):
            hint = "a stored archive is never replaced: download it (wheelfactory kernels SET --download)"
            which = f"{stored.name} of {name} is not the {file} with sha256 {sha256}"
            raise PublishError("another archive is already stored", which, hint)
        return True

    def _drafts(self, name: str) -> Iterator[Draft]:
        """Yield the drafts of a name, oldest first; a lost response leaves more than one."""
        drafts = [release for release in self._releases.list_releases() if release.draft and release.tag_name == name]
        return (Draft(self._releases, release) for release in sorted(drafts, key=lambda release: release.id))

    @cached_property
    def _published(self) -> dict[str, Release]:
        """The published releases by name, listed once for all of them."""
        return {release.tag_name: release for release in self._releases.list_releases() if not release.draft}

    def _find_archive(self, name: str) -> tuple[StoredAsset, str] | None:
        """Return the published archive of a name and its attested sha256; None if there is no release of this name.

        Raises `PublishError` unless the release has a single complete archive, `VerificationError` unless a bundle
        beside it attests the digest that GitHub states, and `InputError` without sigstore.
        """
        # the list can be older than a release of this name
        release = self._published.get(name) or self._releases.find_published(name)
        if release is None:
            return None
        assets = self._releases.read_assets(release)
        archives = [asset for asset in assets.values() if not asset.name.endswith(BUNDLE_SUFFIX)]
        sha256 = self._releases.find_sha256(archives[0]) if len(archives) == 1 else None
        if sha256 is None or Path(archives[0].name).name != archives[0].name:
            hint = "delete that release and its tag on GitHub; the kernels are then compiled again"
            raise PublishError("not a single kernel archive", f"release {name} has {len(archives)} files", hint)
        archive = archives[0]
        beside = f"{archive.name}{BUNDLE_SUFFIX}"
        bundle = assets.get(beside)
        if bundle is None or bundle.size > MAX_BUNDLE_BYTES:
            found = "no" if bundle is None else f"{bundle.size} bytes of"
            which = f"release {name} has {found} {beside}"
            raise VerificationError("kernel archive without an attestation", which, _UNTRUSTED_HINT)
        self._require_attested(archive.name, sha256, self._releases.read(bundle), _UNTRUSTED_HINT)
        return archive, sha256

    def _require_attested(self, file: str, sha256: str, bundle: bytes, hint: str) -> None:
        """Raise `VerificationError` unless `bundle` attests this file, signed by `BUILD_WORKFLOW` of the repository."""
        require_sigstore()
        # imported here: sigstore is optional, and takes a second
        from wheelfactory.release.attestation import check_attestation

        repository = self._releases.client.repository
        result = check_attestation(bundle, file, sha256, repository, BUILD_WORKFLOW, self._signed_ref)
        if result.status is not Status.PASSED:
            which = "; ".join(map(str, result.findings))
            raise VerificationError("kernel archive not attested by this repository", which, hint)
