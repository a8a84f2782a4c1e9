"""The published releases of a repository: their files, and the newest manifest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from wheelfactory.core.errors import PublishError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.github.drafts import wheel_name
from wheelfactory.release.github.releases import Release, ReleaseFiles, Releases
from wheelfactory.release.manifest import WheelRow, parse_rows
from wheelfactory.release.transaction import Asset, asset_digests
from wheelfactory.release.verified import merge_rows

# the longest time between reading the rows and publishing: a request waits up to 3 h for a rate limit (`client`). A
# manifest published so soon after another one may lack its rows
_OVERLAP = timedelta(hours=4)


class PublishedReleases:
    """The published releases with wheels. Prereleases are ignored: they hold kernel archives."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases
        self._held: dict[int, ReleaseFiles] = {}
        self._manifests: dict[int, tuple[WheelRow, ...]] = {}

    def update(self, listed: Iterable[Release]) -> None:
        """Replace the known releases with the published releases of this list."""
        # a published release never changes, so its assets are listed only once
        self._held = {
            release.id: self._held.get(release.id) or ReleaseFiles(self._releases, release)
            for release in listed
            if not (release.draft or release.prerelease)
        }

    def manifest_ids(self) -> frozenset[int]:
        """The ids of the releases with a manifest."""
        return frozenset(held.release.id for held in self._with_manifest())

    def read_newest_manifest(self) -> tuple[WheelRow, ...]:
        """The rows of the newest manifest; none without one. Raises `InputError` for an invalid manifest."""
        newest = self._with_manifest()[:1]
        return self._read_manifest(newest[0]) if newest else ()

    def read_rows(self) -> tuple[WheelRow, ...]:
        """The rows of the newest manifest, and of those up to `_OVERLAP` older, whose rows it may lack."""
        rows = self.read_newest_manifest()
        named = self._with_manifest()
        for held in named[1:]:
            if _published_at(named[0]) - _published_at(held) <= _OVERLAP:
                rows = merge_rows(rows, self._read_manifest(held))
        return rows

    def _with_manifest(self) -> list[ReleaseFiles]:
        """The releases with a manifest, the newest first."""
        named = [held for held in self._held.values() if MANIFEST_NAME in held.assets]
        return sorted(named, key=lambda held: (_published_at(held), held.release.id), reverse=True)

    def _read_manifest(self, held: ReleaseFiles) -> tuple[WheelRow, ...]:
        if held.release.id not in self._manifests:
            data = self._releases.read(held.assets[MANIFEST_NAME])
            self._manifests[held.release.id] = parse_rows(data, f"{MANIFEST_NAME} of {held.release.tag_name}")
        return self._manifests[held.release.id]

    def find_url(self, row: WheelRow) -> str | None:
        """Find the public URL of a wheel in a release that also has its metadata; None if no release has both."""
        # the URL that GitHub reports is never constructed here
        for held in self._held.values():
            if held.has_assets(asset_digests([row])):
                return held.assets[row.filename].browser_download_url
        return None

    def has_asset(self, asset: Asset) -> bool:
        """Whether this exact file is published.

        Raises `PublishError` if the name has other content, or only a wheel or only its metadata is published.
        """
        wheel = wheel_name(asset.name)
        for held in self._held.values():
            if held.has_assets({asset.name: asset.sha256}):
                return True
            if asset.name in held.assets:
                raise self._refusal("already published with different content", asset.name, held)
            if not held.assets.keys().isdisjoint((wheel, f"{wheel}.metadata")):
                raise self._refusal("published incompletely", wheel, held)
        return False

    @staticmethod
    def _refusal(what: str, name: str, held: ReleaseFiles) -> PublishError:
        hint = (
            "if the manifest names it, yank it and run the factory again, which builds a replacement of another name; "
            "otherwise delete that release on GitHub and publish under another --tag"
        )
        return PublishError(what, f"{name} in {held.release.tag_name}", hint)


def _published_at(held: ReleaseFiles) -> datetime:
    return held.release.published_at or datetime.min.replace(tzinfo=timezone.utc)
