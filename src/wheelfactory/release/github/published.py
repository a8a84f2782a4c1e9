"""The published releases of a repository: their files, and the newest manifest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from functools import cached_property

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


class _PublishedRelease(ReleaseFiles):
    """One published release. It never changes, so its assets and its manifest are read only once."""

    @cached_property
    def rows(self) -> tuple[WheelRow, ...]:
        """The rows of its manifest. Raises `InputError` for an invalid manifest."""
        data = self._releases.read(self.assets[MANIFEST_NAME])
        return parse_rows(data, f"{MANIFEST_NAME} of {self.release.tag_name}")

    @property
    def published_at(self) -> datetime:
        """When it was published."""
        return self.release.published_at or datetime.min.replace(tzinfo=timezone.utc)


class PublishedReleases:
    """The published releases with wheels. Prereleases are ignored: they hold kernel archives."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases
        self._held: dict[int, _PublishedRelease] = {}

    def update(self, listed: Iterable[Release]) -> None:
        """Replace the known releases with the published releases of this list."""
        published = (release for release in listed if not (release.draft or release.prerelease))
        self._held = {one.id: self._held.get(one.id) or _PublishedRelease(self._releases, one) for one in published}

    def manifest_ids(self) -> frozenset[int]:
        """The ids of the releases with a manifest."""
        return frozenset(held.release.id for held in self._with_manifest())

    def read_newest_manifest(self) -> tuple[WheelRow, ...]:
        """The rows of the newest manifest; none without one. Raises `InputError` for an invalid manifest."""
        return next((held.rows for held in self._with_manifest()), ())

    def read_rows(self) -> tuple[WheelRow, ...]:
        """The rows of the newest manifest, and of those up to `_OVERLAP` older, whose rows it may lack."""
        rows = self.read_newest_manifest()
        named = self._with_manifest()
        for held in named[1:]:
            if named[0].published_at - held.published_at <= _OVERLAP:
                rows = merge_rows(rows, held.rows)
        return rows

    def _with_manifest(self) -> list[_PublishedRelease]:
        """The releases with a manifest, the newest first."""
        named = [held for held in self._held.values() if MANIFEST_NAME in held.assets]
        return sorted(named, key=lambda held: (held.published_at, held.release.id), reverse=True)

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
