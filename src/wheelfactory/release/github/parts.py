"""Divide wheels among GitHub releases ("parts"): tags, limits, and the part of each file. No I/O.

A release holds 1000 assets, and none can be added once it is published. Other wheels go to another part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX
from wheelfactory.matrix.forms import ASSET_BYTES
from wheelfactory.release.bundle import BUNDLE_SUFFIX
from wheelfactory.release.transaction import SUMS_NAME, Asset

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
        raise InputError(
            "the tag has a reserved prefix", tag, f"it must not begin with {_MORE}, {STORED_SET_PREFIX} or untagged-"
        )
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
