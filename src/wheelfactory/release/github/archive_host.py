"""Keeps kernel archives in releases of a GitHub repository: one prerelease each, with the archive as its one asset."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.errors import PublishError
from wheelfactory.core.files import atomic_path
from wheelfactory.release.github.drafts import Draft
from wheelfactory.release.github.parts import require_size
from wheelfactory.release.github.releases import Release, Releases, StoredAsset
from wheelfactory.release.transaction import Asset

_NOTES = "Compiled kernels of one kernel set; `wheelfactory kernels` takes them from here. Nothing to install."


class GitHubArchiveHost:
    """A `wheelfactory.kernels.archive_host.Shelf` in a repository: the name of an archive is the tag of its release."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases

    def has(self, name: str) -> bool:
        """Whether an archive is kept under this name."""
        return self._kept(name) is not None

    def upload(self, name: str, archive: Path) -> None:
        """Keep an archive; nothing is done if the same bytes are kept under this name.

        Raises `PublishError` if others are, if it is too large, or if a release of this tag has no archive.
        """
        asset = Asset.from_content(archive.name, archive)
        require_size(asset)
        kept = self._kept(name)
        if kept:
            if kept.name != asset.name or not self._releases.has_digest(kept, asset.sha256):
                hint = "what is kept is never replaced: take that one (wheelfactory kernels SET --download)"
                raise PublishError("the archive host has another archive of this name", f"{kept.name} of {name} is not {archive}", hint)
            return
        # of several drafts, made when an answer was lost, one is enough: the archive is at hand
        found = [release for release in self._releases.list_releases() if release.draft and release.tag_name == name]
        oldest: Release | None = min(found, key=lambda release: release.id, default=None)
        for release in found:
            if release is not oldest:
                self._releases.delete_draft(release)
        draft = Draft(self._releases, oldest or self._releases.create(name, prerelease=True))
        draft.keep_only({asset.name})
        draft.put_asset(asset)
        draft.require_assets({asset.name: asset.sha256})
        self._releases.publish(draft.release, _NOTES, latest=False)

    def download(self, name: str, folder: Path) -> Path | None:
        """Bring an archive into `folder`, whole and with the digest that GitHub has of it; None if none is kept."""
        kept = self._kept(name)
        if kept is None:
            return None
        path = folder / kept.name
        with atomic_path(path) as written:
            self._releases.download(kept, written)
        return path

    def _kept(self, name: str) -> StoredAsset | None:
        """The archive of a published release. Raises `PublishError` if it is not the only asset, or not whole."""
        release = self._releases.find_published(name)
        if release is None:
            return None
        assets = tuple(self._releases.list_assets(release).values())
        if len(assets) != 1 or assets[0].state != "uploaded" or Path(assets[0].name).name != assets[0].name:
            hint = "delete that release on GitHub, and its tag; the kernels are compiled again then"
            raise PublishError("not one kernel archive", f"release {name} has {len(assets)} files", hint)
        return assets[0]
