"""Tags of AMD's images <-> what they say: the ROCm release, what stays when that moves on, which have one compiler.

rocm/pytorch has three spellings (release_, release- and neither), rocm/dev-* has its own; others say nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from packaging.version import Version

from wheelfactory.core.errors import InputError

_PYTORCH = re.compile(
    "rocm(?P<rocm>[0-9]+[.][0-9]+([.][0-9]+)?)"
    "_(?P<system>ubuntu[0-9]{2}[.][0-9]{2})_(?P<python>py3[.][0-9]+)_pytorch_(release[_-])?(?P<torch>[0-9.]+)"
)
_DEVELOPMENT = re.compile("(?P<rocm>[0-9]+[.][0-9]+([.][0-9]+)?)-(?P<extent>complete|full)")
_REFERENCE = re.compile(
    "(?:docker[.]io/)?(?P<repository>[a-z0-9_-]+/[a-z0-9._-]+):(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})"
)
"""An image of Docker Hub; another registry has a dot or a port in the first part of its name."""


@dataclass(frozen=True)
class ImageTag:
    """A tag that follows one of AMD's patterns."""

    text: str
    rocm: tuple[int, int, int]
    """The release; tags drop a patch of 0."""
    kind: tuple[str, ...]
    """The rest: distribution, Python and torch, or how much of ROCm is installed."""

    def entry(self, entries: Collection[str]) -> str:
        """The entry of the matrix that it belongs to: that of its very release if there is one, else of its minor."""
        release, minor = (".".join(map(str, self.rocm[:count])) for count in (3, 2))
        return release if release in entries else minor


def split_reference(image: str) -> tuple[str, str]:
    """``owner/name:tag`` -> ``owner/name`` and ``tag``. Raises `InputError` for anything else."""
    found = _REFERENCE.fullmatch(image)
    if not found:
        raise InputError("not an image of Docker Hub", image, "write it as owner/name:tag")
    return found["repository"], found["tag"]


def parse_tag(text: str) -> ImageTag | None:
    """What a tag says, or None if it follows no pattern of AMD's."""
    found = _PYTORCH.fullmatch(text) or _DEVELOPMENT.fullmatch(text)
    if not found:
        return None
    parts = found.groupdict()
    major, minor, patch = (*map(int, parts.pop("rocm").split(".")), 0)[:3]
    return ImageTag(text, (major, minor, patch), tuple(parts.values()))


def newest_patch(tag: str, listed: Iterable[str], entry: str, entries: Collection[str]) -> str:
    """The tag of the newest patch release that takes the place of `tag` in its entry; `tag` itself if there is none.

    Distribution, Python and torch stay, and so does the entry: where 6.2.4 is an entry of the matrix, no image
    of 6.2 becomes one of 6.2.4.
    """
    own = parse_tag(tag)
    if own is None:
        return tag
    newer = [other for other in _parsed(listed, entry, entries) if other.kind == own.kind and other.rocm > own.rocm]
    return max(newer, key=lambda other: (other.rocm, other.text)).text if newer else tag


def additional_tags(tags: Collection[str], listed: Iterable[str], entry: str, entries: Collection[str]) -> list[str]:
    """Tags of the entry's newest release, or of a newer one, with a distribution, Python or torch that `tags` lack."""
    own = [parsed for tag in tags if (parsed := parse_tag(tag))]
    if not own:
        return []
    newest, kinds = max(tag.rocm for tag in own), {tag.kind for tag in own}
    found = [tag for tag in _parsed(listed, entry, entries) if tag.rocm >= newest and tag.kind not in kinds]
    return [tag.text for tag in sorted(found, key=lambda tag: (tag.rocm, tag.text))]


def _parsed(listed: Iterable[str], entry: str, entries: Collection[str]) -> list[ImageTag]:
    parsed = (parse_tag(text) for text in listed)
    return [tag for tag in parsed if tag and tag.entry(entries) == entry]


class ToolchainImage(Protocol):
    """What an image says of its compiler and libraries."""

    @property
    def tag(self) -> str:
        """Its literal tag."""

    @property
    def distribution(self) -> str:
        """Such as ``ubuntu22.04``."""

    @property
    def glibc(self) -> str:
        """The version of its C library."""


AnyImage = TypeVar("AnyImage", bound=ToolchainImage)


def rocm_release(image: ToolchainImage) -> tuple[int, ...]:
    """The ROCm release that the tag of an image says, such as ``(7, 1, 1)``; empty if it says none."""
    parsed = parse_tag(image.tag.rpartition(":")[2])
    return parsed.rocm if parsed else ()


def same_compiler_images(images: Sequence[AnyImage]) -> tuple[AnyImage, ...]:
    """The images of a ROCm entry that have one and the same compiler: those of the newest release, on one distribution.

    A cell takes an object only if its compiler has the same content and finds the C and C++ library of the same version
    (`kernels.compiler.key`), so both the ROCm release and the distribution must be one. What that saves are 20 to 60
    CPU hours for each image beyond the first; what it costs is 18 GB of disk where another image would have had the
    torch of a cell. The distribution is the one with the oldest glibc that the release is there for.

    The oldest, because a wheel runs on the glibc that it was compiled with and on newer ones. An image whose tag says
    no release is left out where another one's does, as its compiler may be any. Where none does, all are taken: nothing
    tells which of them are alike, and kernels of a compiler that is not are refused by their key.
    """
    newest = max(map(rocm_release, images))
    if not newest:
        return tuple(images)
    same = [image for image in images if rocm_release(image) == newest]
    system = min(same, key=lambda image: Version(image.glibc)).distribution
    return tuple(image for image in same if image.distribution == system)
