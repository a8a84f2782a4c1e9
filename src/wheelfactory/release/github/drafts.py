"""The drafts of one tag: which part of the release each is, and a further one where there is none with room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wheelfactory.release.github.draft import Draft
from wheelfactory.release.github.parts import part_number, part_tag, wheels_in, with_room
from wheelfactory.release.github.releases import Release, Releases


class Drafts:
    """The drafts that a listing of all releases has for a tag."""

    def __init__(self, releases: Releases, tag: str, listed: Iterable[Release]) -> None:
        self._releases = releases
        self._tag = tag
        found = sorted(listed, key=lambda release: release.id)
        self._tags = {release.tag_name: part_number(tag, release.tag_name) for release in found}
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
            number = part_number(self._tag, draft.release.tag_name)
            if number is None or number in self._parts or draft.release.tag_name in self._published:
                if wheels_in(draft.assets):
                    number, tag = self._free()
                    draft = Draft(self._releases, self._releases.rename(draft.release, tag))
                else:
                    self._releases.discard(draft.release)
                    number = None
            if number is not None:
                self._parts[number] = draft
            del self._unsettled[0]
        return dict(sorted(self._parts.items()))

    def for_wheel(self, wheel: str) -> Draft:
        """The part that a file of a wheel goes to, made if none has room."""
        number = with_room({number: draft.assets for number, draft in self.parts().items()}, wheel)
        return self._parts[self.new() if number is None else number]

    def new(self) -> int:
        """Make one more part; gives its number."""
        number, tag = self._free()
        self._parts[number] = Draft(self._releases, self._releases.create(tag))
        return number

    def discard(self, number: int) -> None:
        """Delete a part."""
        self._releases.discard(self._parts.pop(number).release)

    def _free(self) -> tuple[int, str]:
        """The next number that no release has, draft or published, and its tag; it is taken thereby."""
        number = 1 + max((taken for taken in self._tags.values() if taken), default=0)
        tag = part_tag(self._tag, number)
        self._tags[tag] = number
        return number, tag
