"""How wheels are divided among releases: the tags of the parts, and which part a file goes to; pure.

A release on GitHub takes 1000 assets and, once published, no more. What does not fit, or comes later, goes to another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.kernels.estimate import ASSET_BYTES
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX
from wheelfactory.release.manifest import MANIFEST_NAME
from wheelfactory.release.transaction import SUMS_NAME, Asset

WRITTEN_LAST = frozenset({SUMS_NAME, MANIFEST_NAME})
"""What a part has beside wheels, written when it is known which wheels those are."""

MAX_ASSETS = 1000
"""Assets of one release: GitHub refuses more (documentation of releases)."""
MAX_WHEELS = (MAX_ASSETS - len(WRITTEN_LAST)) // 2
"""Wheels of one part: each is two assets."""

_MORE = "wheels-"
_TAG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]*[A-Za-z0-9+])?")


def require_size(asset: Asset) -> None:
    """Raises `PublishError` for a file that GitHub would not take."""
    if asset.size >= ASSET_BYTES:
        hint = "GitHub takes files under 2 GiB: build it for fewer offload archs"
        raise PublishError("too large for a release", f"{asset.name} has {asset.size} bytes", hint)


def parse_release_tag(tag: str) -> str:
    """A tag that releases may be made of. Raises `InputError` for one that git or this scheme cannot have."""
    if not _TAG.fullmatch(tag) or ".." in tag or tag.endswith(".lock"):
        raise InputError("not a tag", tag, "letters, digits and . _ + - as in v1.2.0")
    if tag.startswith((_MORE, STORED_SET_PREFIX, "untagged-")):
        raise InputError(
            "a tag with another meaning", tag, f"it must not begin with {_MORE}, {STORED_SET_PREFIX} or untagged-"
        )
    return tag


def part_tag(tag: str, number: int) -> str:
    """The tag of a part, counted from 1; those after the first do not begin as tags that start a build."""
    return tag if number == 1 else f"{_MORE}{tag}-{number}"


def find_part_number(tag: str, found: str) -> int | None:
    """Which part of `tag` a release's tag is, or None."""
    if found == tag:
        return 1
    match = re.fullmatch(rf"{_MORE}{re.escape(tag)}-([1-9][0-9]*)", found)
    number = int(match[1]) if match else 1
    return number if number > 1 else None


def wheel_name(name: str) -> str:
    """The wheel that an asset belongs to: itself, or the one that it is the metadata of."""
    return name.removesuffix(".metadata")


def wheel_names(names: Iterable[str]) -> frozenset[str]:
    """The wheels that a part has, or has only the half of."""
    return frozenset(wheel_name(name) for name in names if name not in WRITTEN_LAST)


def find_part_with_room(parts: Mapping[int, Iterable[str]], wheel: str) -> int | None:
    """The part (of those that are drafts, with the names each has) that a file of a wheel goes to; None: a new one.

    A wheel and its metadata are always in one part, because installers look for the one beside the other.
    """
    wheels = {number: wheel_names(names) for number, names in sorted(parts.items())}
    for number, held in wheels.items():
        if wheel in held:
            return number
    return next((number for number, held in wheels.items() if len(held) < MAX_WHEELS), None)
