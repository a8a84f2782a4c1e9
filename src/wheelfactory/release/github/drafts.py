"""Divide wheels among GitHub releases ("parts"), and upload the draft release of each part.

A release holds 1000 assets, and none can be added once it is published. Other wheels go to another part.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import requests

from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX
from wheelfactory.matrix.forms import ASSET_BYTES
from wheelfactory.release.bundle import BUNDLE_SUFFIX
from wheelfactory.release.github.releases import Release, ReleaseFiles, Releases, StoredAsset
from wheelfactory.release.github.responses import RefusedError, RetryableError
from wheelfactory.release.transaction import SUMS_NAME, Asset


class Draft(ReleaseFiles):
    """One draft release."""

    def put_asset(self, asset: Asset, report_progress: ProgressCallback = ignore_progress) -> None:
        """Upload an asset unless an identical one is there; replace any other of its name.

        Raises `PublishError` if GitHub renames the file or repeatedly stores other bytes.
        """
        if not self.has_assets({asset.name: asset.sha256}):
            self._releases.client.retry(lambda: self._upload(asset, report_progress), lambda: self._find_stored(asset))

    def _find_stored(self, asset: Asset) -> StoredAsset | None:
        """List the assets again; return this one if it is complete."""
        self.assets = self._releases.list_assets(self.release)
        return self.assets[asset.name] if self.has_assets({asset.name: asset.sha256}) else None

    def _upload(self, asset: Asset, report_progress: ProgressCallback) -> StoredAsset:
        self.remove(asset.name)
        try:
            stored = self._releases.upload(self.release, asset, report_progress)
        except RefusedError as refused:
            if refused.status != requests.codes.unprocessable_entity or "already_exists" not in str(refused):
                raise
            # by an upload whose response was lost: list again, and replace it if it is incomplete
            raise RetryableError(str(refused)) from refused
        self.assets[stored.name] = stored
        if stored.name != asset.name:
            self.remove(stored.name)
            hint = "rename the file: GitHub replaced characters, so installers would not find it"
            raise PublishError("GitHub renamed a file", f"{asset.name} became {stored.name}", hint)
        if not self.has_assets({stored.name: asset.sha256}):
            raise RetryableError(f"{asset.name}: GitHub stored other bytes")
        return stored

    def remove(self, name: str) -> None:
        """Delete the asset of this name, if there is one."""
        if name in self.assets:
            self._releases.delete_asset(self.release, self.assets[name])
            del self.assets[name]

    def keep_only(self, names: Collection[str]) -> None:
        """Delete every other asset."""
        for name in sorted(set(self.assets).difference(names)):
            self.remove(name)

    def require_assets(self, digests: Mapping[str, str]) -> None:
        """List the assets again. Raises `PublishError` unless they are exactly these, with these sha256."""
        self.assets = self._releases.list_assets(self.release)
        wrong = set(self.assets) ^ set(digests)
        wrong |= {name for name in set(digests) - wrong if not self.has_assets({name: digests[name]})}
        if wrong:
            detail = f"{self.release.tag_name}: {', '.join(sorted(wrong))}"
            raise PublishError("the draft has missing, damaged or unexpected files", detail, "run this command again")


class Drafts:
    """The drafts of one tag, from a list of all releases."""

    def __init__(self, releases: Releases, tag: str, listed: Iterable[Release]) -> None:
        self._releases = releases
        self._tag = tag
        found = sorted(listed, key=lambda release: release.id)
        self._tags = {release.tag_name: find_part_number(tag, release.tag_name) for release in found}
        self._published = {release.tag_name for release in found if not release.draft}
        drafts = (release for release in found if release.draft and self._tags[release.tag_name])
        self._unsettled = [Draft(releases, release) for release in drafts]
        self._parts: dict[int, Draft] = {}

    def __iter__(self) -> Iterator[Draft]:
        return iter((*self._parts.values(), *self._unsettled))

    def parts(self) -> dict[int, Draft]:
        """The drafts by part number, each with its own tag."""
        while self._unsettled:
            draft, *others = self._unsettled
            tag = draft.release.tag_name
            number = find_part_number(self._tag, tag)
            is_taken = number in self._parts or tag in self._published
            # lost responses and concurrent runs leave several drafts of a tag; the first one with wheels keeps it
            if is_taken or any(other.release.tag_name == tag for other in others):
                if not wheel_names(draft.assets):
                    self._releases.delete_draft(draft.release)
                    number = None
                elif is_taken:  # its wheels may be staged only here
                    number, tag = self._reserve_tag()
                    draft = Draft(self._releases, self._releases.rename(draft.release, tag))
            if number is not None:
                self._parts[number] = draft
            del self._unsettled[0]
        return dict(sorted(self._parts.items()))

    def draft_for_wheel(self, wheel: str) -> Draft:
        """The draft for a file of this wheel; a new one if none has room."""
        number = find_part_with_room({number: draft.assets for number, draft in self.parts().items()}, wheel)
        return self._parts[self.create_part() if number is None else number]

    def create_part(self) -> int:
        """Create another part; return its number."""
        number, tag = self._reserve_tag()
        self._parts[number] = Draft(self._releases, self._releases.create(tag))
        return number

    def rename_first(self, number: int) -> int:
        """Give the first part that is published the tag itself, unless a release has it; return its number then."""
        if 1 in self._parts or self._tag in self._published:
            return number
        draft = self._parts.pop(number)
        self._parts[1] = Draft(self._releases, self._releases.rename(draft.release, self._tag))
        return 1

    def delete_part(self, number: int) -> None:
        """Delete a part."""
        self._releases.delete_draft(self._parts.pop(number).release)

    def _reserve_tag(self) -> tuple[int, str]:
        """Reserve the next part number that no draft or published release has; return it with its tag."""
        number = 1 + max((used for used in self._tags.values() if used), default=0)
        tag = part_tag(self._tag, number)
        self._tags[tag] = number
        return number, tag


# the files of a part beside its wheels. They are written last, because they name the wheels
WRITTEN_LAST = frozenset({SUMS_NAME, MANIFEST_NAME})

# GitHub's limit of assets for one release (its documentation of releases)
MAX_ASSETS = 1000
MAX_WHEELS = (MAX_ASSETS - len(WRITTEN_LAST)) // 3
"""Wheels in one part; each wheel is three assets: the file, its metadata and its attestation."""

_MORE = "wheels-"
_TAG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]*[A-Za-z0-9+])?")


def require_size(asset: Asset) -> None:
    """Raise `PublishError` for a file over GitHub's size limit."""
    if asset.size >= ASSET_BYTES:
        hint = "GitHub's limit is 2 GiB: build for fewer offload archs"
        raise PublishError("too large for a release", f"{asset.name} has {asset.size} bytes", hint)


def parse_release_tag(tag: str) -> str:
    """Check a release tag. Raises `InputError` if git would refuse it or its prefix is reserved."""
    if not _TAG.fullmatch(tag) or ".." in tag or tag.endswith(".lock"):
        raise InputError("not a tag", tag, "use letters, digits and . _ + -, for example v1.2.0")
    if tag.startswith((_MORE, STORED_SET_PREFIX, "untagged-")):
        reserved = f"{_MORE}, {STORED_SET_PREFIX} and untagged-"
        raise InputError("the tag has a reserved prefix", tag, f"choose another prefix than {reserved}")
    return tag


def part_tag(tag: str, number: int) -> str:
    """Return the tag of a part; parts are counted from 1."""
    # the prefix keeps later parts from matching the tag pattern that starts a build
    return tag if number == 1 else f"{_MORE}{tag}-{number}"


def find_part_number(tag: str, found: str) -> int | None:
    """Return the part number of the release tag `found` if it is a part of `tag`, else None."""
    if found == tag:
        return 1
    match = re.fullmatch(rf"{_MORE}{re.escape(tag)}-([1-9][0-9]*)", found)
    number = int(match[1]) if match else 1
    return number if number > 1 else None


def wheel_name(name: str) -> str:
    """Return the wheel that an asset belongs to: ``X.whl`` for ``X.whl.metadata`` and ``X.whl.sigstore.json``."""
    return name.removesuffix(".metadata").removesuffix(BUNDLE_SUFFIX)


def wheel_names(names: Iterable[str]) -> frozenset[str]:
    """Return the wheels of the assets of a part, including incomplete pairs."""
    return frozenset(wheel_name(name) for name in names if name not in WRITTEN_LAST)


def find_part_with_room(parts: Mapping[int, Iterable[str]], wheel: str) -> int | None:
    """Return the draft part for a file of `wheel`, None if a new one is needed; `parts` has the asset names of each."""
    # installers look for the metadata beside the wheel, so both are always in one part
    wheels = {number: wheel_names(names) for number, names in sorted(parts.items())}
    for number, held in wheels.items():
        if wheel in held:
            return number
    return next((number for number, held in wheels.items() if len(held) < MAX_WHEELS), None)
