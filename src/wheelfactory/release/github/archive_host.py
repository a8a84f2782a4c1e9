"""Store kernel archives in a GitHub repository: one prerelease per archive, with the archive as its only asset."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.errors import PublishError
from wheelfactory.core.files import atomic_path
from wheelfactory.release.github.drafts import Draft
from wheelfactory.release.github.parts import require_size
from wheelfactory.release.github.releases import Release, Releases, StoredAsset
from wheelfactory.release.transaction import Asset

_NOTES = "Compiled kernels of one kernel set, for `wheelfactory kernels --download`. Not installable."


class GitHubArchiveHost:
    """A `wheelfactory.kernels.archive_host.ArchiveHost` in a repository. The name of an archive is its release tag."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases

    def has(self, name: str) -> bool:
        """Whether an archive is stored under this name."""
        return self._find_archive(name) is not None

    def upload(self, name: str, archive: Path) -> None:
        """Store an archive, unless the same bytes are stored under this name already.

        Raises `PublishError` if different bytes are stored, if the archive is too large, or if the release has none.
        """
        asset = Asset.from_content(archive.name, archive)
        require_size(asset)
        stored = self._find_archive(name)
        if stored:
            if stored.name != asset.name or not self._releases.has_digest(stored, asset.sha256):
                hint = "a stored archive is never replaced: download it (wheelfactory kernels SET --download)"
                raise PublishError(
                    "another archive is already stored", f"{stored.name} of {name} is not {archive}", hint
                )
            return
        oldest = min(self._list_drafts(name), key=lambda release: release.id, default=None)
        draft = Draft(self._releases, oldest or self._releases.create(name, prerelease=True))
        draft.keep_only({asset.name})
        draft.put_asset(asset)
        draft.require_assets({asset.name: asset.sha256})
        self._releases.publish(draft.release, _NOTES, latest=False)
        # left by lost responses, and perhaps listed only now
        for left in self._list_drafts(name):
            self._releases.delete_draft(left)

    def _list_drafts(self, name: str) -> list[Release]:
        return [release for release in self._releases.list_releases() if release.draft and release.tag_name == name]

    def download(self, name: str, folder: Path) -> Path | None:
        """Download an archive into `folder` and verify its digest; None if none is stored under this name."""
        stored = self._find_archive(name)
        if stored is None:
            return None
        path = folder / stored.name
        with atomic_path(path) as written:
            self._releases.download(stored, written)
        return path

    def _find_archive(self, name: str) -> StoredAsset | None:
        """Return the stored archive, or None. Raises `PublishError` unless it is complete and the only asset."""
        release = self._releases.find_published(name)
        if release is None:
            return None
        assets = tuple(self._releases.list_assets(release).values())
        if len(assets) != 1 or assets[0].state != "uploaded" or Path(assets[0].name).name != assets[0].name:
            hint = "delete that release and its tag on GitHub; the kernels are then compiled again"
            raise PublishError("not a single kernel archive", f"release {name} has {len(assets)} files", hint)
        return assets[0]
