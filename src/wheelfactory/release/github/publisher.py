"""Publish into releases of a GitHub repository: fill drafts, verify them, then publish them, the manifest last.

The newest published release with a manifest names every row. A published release is never changed. GitHub has no lock:
runs that publish at the same time find each other's manifest afterwards, and the later one publishes both changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TypeAlias

from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.progress import ProgressCallback, ignore_progress, logger
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.core.wrap import shorten_names
from wheelfactory.release.bundle import BUNDLE_SUFFIX
from wheelfactory.release.github.drafts import Draft, Drafts, parse_release_tag, require_size, wheel_name, wheel_names
from wheelfactory.release.github.releases import Release, ReleaseFiles, Releases
from wheelfactory.release.manifest import WheelRow, manifest_bytes, parse_rows
from wheelfactory.release.transaction import (
    SUMS_NAME,
    Asset,
    ConcurrentPublishError,
    asset_digests,
    attested_names,
    is_staged_rows,
    sha256sums,
    staged_rows_asset,
)
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


WriteNotes: TypeAlias = Callable[[Sequence[WheelRow], Sequence[WheelRow]], str]
"""Writes the Markdown text of a release from the rows before and after it."""


class GitHubPublisher:
    """The wheels of a repository, and the drafts of one tag. Without a tag it is read-only."""

    def __init__(self, releases: Releases, tag: str | None = None, notes: WriteNotes | None = None) -> None:
        """Without `notes` a release has no text. Raises `InputError` for an invalid tag."""
        self._releases = releases
        self._tag = parse_release_tag(tag) if tag is not None else None
        self._notes = notes
        self._published = PublishedReleases(releases)
        self._drafts: Drafts | None = None
        """As listed last; without parts if there is no tag."""
        self._read: frozenset[int] | None = None
        """The ids of the releases with a manifest when the rows were read last."""

    def rows(self) -> tuple[WheelRow, ...]:
        """See `Publisher.rows`. `url` is the public address; None if the file was deleted from its release."""
        self._list()
        self._read = self._published.manifest_ids()
        rows = self._published.read_rows()
        return tuple(row.model_copy(update={"url": self._published.find_url(row)}) for row in rows)

    def has_wheel(self, row: WheelRow) -> bool:
        """See `Publisher.has_wheel`."""
        drafts = self._drafts or self._list()
        if self._published.find_url(row) is not None:
            return True
        return any(draft.has_assets(asset_digests([row])) for draft in drafts)

    def put_asset(self, asset: Asset, report_progress: ProgressCallback = ignore_progress) -> None:
        """See `Publisher.put_asset`. Raises `PublishError` for a file of 2 GiB or more, before sending any of it."""
        require_size(asset)
        drafts = self._own_drafts()
        if not self._published.has_asset(asset):
            drafts.draft_for_wheel(wheel_name(asset.name)).put_asset(asset, report_progress)

    def put_attestation(self, wheel: str, sha256: str, bundle: bytes) -> bool:
        """See `Publisher.put_attestation`. A published release never changes, so its wheels keep what they have."""
        for draft in self._own_drafts().parts().values():
            if draft.has_assets({wheel: sha256}):
                draft.put_asset(Asset.from_content(f"{wheel}{BUNDLE_SUFFIX}", bundle))
                return True
        return False

    def put_rows(self, rows: Sequence[WheelRow]) -> None:
        """See `Publisher.put_rows`. The rows are in the first draft, which deletes them when it is published."""
        drafts = self._own_drafts()
        first = next(iter(drafts.parts()), None) or drafts.create_part()
        drafts.parts()[first].put_asset(staged_rows_asset(rows))

    def staged_rows(self) -> tuple[WheelRow, ...]:
        """See `Publisher.staged_rows`."""
        drafts = self._own_drafts().parts().values()
        stored = [draft.assets[name] for draft in drafts for name in sorted(draft.assets) if is_staged_rows(name)]
        rows = [row for asset in stored for row in parse_rows(self._releases.read(asset), asset.name)]
        return tuple(row for row in rows if self._published.find_url(row) or any(_is_ready(row, one) for one in drafts))

    def commit(self, rows: Sequence[WheelRow]) -> None:
        """See `Publisher.commit`: complete and verify every draft, then publish the drafts in order.

        Raises `PublishError`, and publishes nothing, if the file of a new row is missing, or if no row is new but other
        wheels are staged under the tag.
        """
        self._list()
        self._require_read()
        before = self._published.read_newest_manifest()
        after = tuple(row.model_copy(update={"url": None}) for row in rows)
        manifest = manifest_bytes(after)
        drafts = self._own_drafts()
        divided = self._divide(after, before)
        if not divided:
            self._require_nothing_staged(after)
        if not divided and manifest != manifest_bytes(before):
            divided = {next(iter(drafts.parts()), None) or drafts.create_part(): ()}
        for number in drafts.parts():
            if number not in divided:
                drafts.delete_part(number)
        if divided:
            first = min(divided)
            divided[drafts.rename_first(first)] = divided.pop(first)
            self._publish(divided, before, after)

    def _publish(
        self, divided: Mapping[int, tuple[WheelRow, ...]], before: Sequence[WheelRow], after: Sequence[WheelRow]
    ) -> None:
        parts, last = self._own_drafts().parts(), max(divided)
        self._releases.require_unmoved(str(self._tag))
        for number, rows in sorted(divided.items()):
            _complete(parts[number], rows, after if number == last else None)
        for number in sorted(divided):
            release = parts[number].release
            self._list()
            self._require_read()  # just before each publish, because GitHub has no lock
            if number == last:
                text = self._notes(before, after) if self._notes else ""
            else:
                text = f"Files of {parts[last].release.tag_name}, which has the manifest and the notes."
            published = self._releases.publish(release, text, latest=number == last)
            if not published.immutable:
                logger.warning("%s is not immutable: enable immutable releases in its settings", release.tag_name)
        # another run can have published after the last check; and publish times are whole seconds, so that another
        # release of the same second can win as the newest
        self._list()
        self._require_read(published.id)
        if manifest_bytes(self._published.read_newest_manifest()) != manifest_bytes(after):
            raise ConcurrentPublishError(f"{self._tag} in {self._releases.client.repository}")

    def _require_read(self, own: int | None = None) -> None:
        """Raise `ConcurrentPublishError` if there are manifests, except the `own`, that were not read."""
        if self._read is not None and self._published.manifest_ids() - {own} != self._read:
            raise ConcurrentPublishError(self._releases.client.repository)

    def _require_nothing_staged(self, rows: Iterable[WheelRow]) -> None:
        """Raise `PublishError` if the drafts have wheels of no row: deleting them would lose what a run is staging."""
        named = {row.filename for row in rows}
        drafts = self._own_drafts().parts().values()
        staged = {name for draft in drafts for name in wheel_names(draft.assets) if not is_staged_rows(name)} - named
        if staged:
            hint = "use another --tag, or publish or delete the draft first"
            which = f"{self._tag} has {shorten_names(sorted(staged), 1)}"
            raise PublishError("wheels are staged under this tag", which, hint)

    def _divide(self, rows: Iterable[WheelRow], before: Sequence[WheelRow]) -> dict[int, tuple[WheelRow, ...]]:
        """The new rows of each draft, by part number. Raises `PublishError` for a new row without a file."""
        known = {(row.filename, row.sha256) for row in before}
        parts = self._own_drafts().parts()
        divided: dict[int, tuple[WheelRow, ...]] = {}
        for row in rows:
            if self._published.find_url(row) is not None:
                continue
            number = next((number for number, draft in parts.items() if draft.has_assets(asset_digests([row]))), None)
            if number is not None:
                divided[number] = (*divided.get(number, ()), row)
            elif (row.filename, row.sha256) not in known:  # known rows need no file: it may have been deleted on GitHub
                hint = "run the same command again, or publish with --stage and its file first"
                raise PublishError("file is not staged", row.filename, hint)
        return divided

    def _list(self) -> Drafts:
        listed = self._releases.list_releases()
        self._published.update(listed)
        self._drafts = Drafts(self._releases, self._tag or "", listed)  # no release has an empty tag
        return self._drafts

    def _own_drafts(self) -> Drafts:
        if self._tag is None:
            raise InputError("no release tag", self._releases.client.repository, "add --tag TAG")
        return self._drafts or self._list()


def _is_ready(row: WheelRow, draft: Draft) -> bool:
    """Whether the files of a row are complete in a draft, with the attestation that its project needs."""
    attested = attested_names(row)
    return draft.has_assets(asset_digests([row])) and len(draft.find_digests(attested)) == len(attested)


def _complete(draft: Draft, rows: Sequence[WheelRow], manifest: Sequence[WheelRow] | None) -> None:
    """Give a draft exactly the files of these rows, their SHA256SUMS, and the manifest unless it is None.

    Attestations of the rows that are in the draft stay.
    """
    written = [] if manifest is None else [Asset.from_content(MANIFEST_NAME, manifest_bytes(manifest))]
    wanted = asset_digests(rows) | {asset.name: asset.sha256 for asset in written}
    wanted |= draft.find_digests(f"{row.filename}{BUNDLE_SUFFIX}" for row in rows)
    written.append(Asset.from_content(SUMS_NAME, sha256sums(wanted)))
    wanted[SUMS_NAME] = written[-1].sha256
    draft.keep_only(wanted)
    for asset in written:
        draft.put_asset(asset)
    draft.require_assets(wanted)
