"""The drafts of one tag: filled one by one, which part of the release each is, and a further one if none has room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import requests

from wheelfactory.core.errors import PublishError
from wheelfactory.core.progress import ProgressPart, ignore_progress
from wheelfactory.release.github.parts import find_part_number, find_part_with_room, part_tag, wheel_names
from wheelfactory.release.github.releases import Release, Releases, StoredAsset
from wheelfactory.release.github.responses import RefusedError, RetryableError
from wheelfactory.release.transaction import Asset


class Draft:
    """One draft, and what is known of its assets since they were last listed."""

    def __init__(self, releases: Releases, release: Release) -> None:
        self._releases = releases
        self.release = release
        self._assets: dict[str, StoredAsset] | None = None

    @property
    def assets(self) -> dict[str, StoredAsset]:
        """Its assets by name, those that are half there too."""
        if self._assets is None:
            self._assets = self._releases.list_assets(self.release)
        return self._assets

    def has_assets(self, digests: Mapping[str, str]) -> bool:
        """Whether it has all assets of these names, whole and with these sha256."""
        return all(
            name in self.assets and self._releases.has_digest(self.assets[name], sha256)
            for name, sha256 in digests.items()
        )

    def put_asset(self, asset: Asset, part: ProgressPart = ignore_progress) -> None:
        """Make it hold this asset: an identical one is kept, any other of its name replaced.

        Raises `PublishError` if GitHub gives it another name, or keeps storing other bytes.
        """
        if not self.has_assets({asset.name: asset.sha256}):
            self._releases.client.retry(lambda: self._upload(asset, part), lambda: self._stored(asset))

    def _stored(self, asset: Asset) -> StoredAsset | None:
        """The asset if it is there after all, as a new listing says."""
        self._assets = None
        return self.assets[asset.name] if self.has_assets({asset.name: asset.sha256}) else None

    def _upload(self, asset: Asset, part: ProgressPart) -> StoredAsset:
        self.remove(asset.name)
        try:
            stored = self._releases.upload(self.release, asset, part)
        except RefusedError as refused:
            if refused.status != requests.codes.unprocessable_entity or "already_exists" not in str(refused):
                raise
            # by an upload whose answer was lost: look, and replace it if it is not whole
            raise RetryableError(str(refused)) from refused
        self.assets[stored.name] = stored
        if stored.name != asset.name:
            self.remove(stored.name)
            hint = "rename the file: GitHub replaces some characters, and installers would not find it"
            raise PublishError("GitHub renamed a file", f"{asset.name} became {stored.name}", hint)
        if not self._releases.has_digest(stored, asset.sha256):
            raise RetryableError(f"{asset.name}: GitHub stored other bytes")
        return stored

    def remove(self, name: str) -> None:
        """Remove an asset, if it has one of that name."""
        if name in self.assets:
            self._releases.delete_asset(self.assets[name])
            del self.assets[name]

    def keep_only(self, names: Collection[str]) -> None:
        """Remove every other asset."""
        for name in sorted(set(self.assets).difference(names)):
            self.remove(name)

    def require_assets(self, digests: Mapping[str, str]) -> None:
        """Raises `PublishError` unless a new listing has exactly these assets, with these sha256."""
        self._assets = None
        wrong = set(self.assets) ^ set(digests)
        wrong |= {name for name in set(digests) - wrong if not self.has_assets({name: digests[name]})}
        if wrong:
            told = f"{self.release.tag_name}: {', '.join(sorted(wrong))}"
            raise PublishError("the draft does not hold what it should", told, "run the same command again")


class Drafts:
    """The drafts that a listing of all releases has for a tag."""

    def __init__(self, releases: Releases, tag: str, listed: Iterable[Release]) -> None:
        self._releases = releases
        self._tag = tag
        found = sorted(listed, key=lambda release: release.id)
        self._tags = {release.tag_name: find_part_number(tag, release.tag_name) for release in found}
        self._published = {release.tag_name for release in found if not release.draft}
        self._unsettled = [
            Draft(releases, release) for release in found if release.draft and self._tags[release.tag_name]
        ]
        self._parts: dict[int, Draft] = {}

    def __iter__(self) -> Iterator[Draft]:
        return iter((*self._parts.values(), *self._unsettled))

    def parts(self) -> dict[int, Draft]:
        """The drafts by the number of their part, each with a tag of its own that is free.

        A draft whose tag is published, or is that of an older draft, was made when an answer was lost or by two runs.
        It becomes another part if it has wheels, so that nothing staged is lost, and is deleted if it has none.
        """
        while self._unsettled:
            draft = self._unsettled[0]
            number = find_part_number(self._tag, draft.release.tag_name)
            if number is None or number in self._parts or draft.release.tag_name in self._published:
                if wheel_names(draft.assets):
                    number, tag = self._free()
                    draft = Draft(self._releases, self._releases.rename(draft.release, tag))
                else:
                    self._releases.delete_draft(draft.release)
                    number = None
            if number is not None:
                self._parts[number] = draft
            del self._unsettled[0]
        return dict(sorted(self._parts.items()))

    def draft_for_wheel(self, wheel: str) -> Draft:
        """The part that a file of a wheel goes to, made if none has room."""
        number = find_part_with_room({number: draft.assets for number, draft in self.parts().items()}, wheel)
        return self._parts[self.create_part() if number is None else number]

    def create_part(self) -> int:
        """Make one more part; gives its number."""
        number, tag = self._free()
        self._parts[number] = Draft(self._releases, self._releases.create(tag))
        return number

    def delete_part(self, number: int) -> None:
        """Delete a part."""
        self._releases.delete_draft(self._parts.pop(number).release)

    def _free(self) -> tuple[int, str]:
        """The next number that no release has, draft or published, and its tag; it is taken thereby."""
        number = 1 + max((taken for taken in self._tags.values() if taken), default=0)
        tag = part_tag(self._tag, number)
        self._tags[tag] = number
        return number, tag
