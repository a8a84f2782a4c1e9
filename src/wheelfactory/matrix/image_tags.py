"""Parse the tags of AMD's images, find newer ones, and find the images that share a compiler."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from packaging.version import Version

from wheelfactory.core.errors import InputError

# rocm/pytorch tags have had three spellings: release_, release- and neither
_PYTORCH = re.compile(
    "rocm(?P<rocm>[0-9]+[.][0-9]+([.][0-9]+)?)"
    "_(?P<system>ubuntu[0-9]{2}[.][0-9]{2})_(?P<python>py3[.][0-9]+)_pytorch_(release[_-])?(?P<torch>[0-9.]+)"
)
# rocm/dev-* tags
_DEVELOPMENT = re.compile("(?P<rocm>[0-9]+[.][0-9]+([.][0-9]+)?)-(?P<extent>complete|full)")
# an image on Docker Hub. The name of another registry has a dot or a port in its first part
_REFERENCE = re.compile(
    "(?:docker[.]io/)?(?P<repository>[a-z0-9_-]+/[a-z0-9._-]+):(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})"
)


@dataclass(frozen=True)
class ImageTag:
    """A parsed tag of one of AMD's patterns."""

    text: str
    rocm: tuple[int, int, int]
    """The release; tags omit a patch of 0."""
    kind: tuple[str, ...]
    """The rest: distribution, Python and torch, or the extent of the ROCm installation."""

    def entry(self, entries: Collection[str]) -> str:
        """Find its entry in the matrix: the entry of its patch release if there is one, else of its minor."""
        release, minor = (".".join(map(str, self.rocm[:count])) for count in (3, 2))
        return release if release in entries else minor


def split_reference(image: str) -> tuple[str, str]:
    """Split ``owner/name:tag`` at the colon. Raises `InputError` for an image that is not on Docker Hub."""
    found = _REFERENCE.fullmatch(image)
    if not found:
        raise InputError("not an image of Docker Hub", image, "write it as owner/name:tag")
    return found["repository"], found["tag"]


def parse_tag(text: str) -> ImageTag | None:
    """Parse a tag; None if it follows no pattern of AMD."""
    found = _PYTORCH.fullmatch(text) or _DEVELOPMENT.fullmatch(text)
    if not found:
        return None
    parts = found.groupdict()
    major, minor, patch = (*map(int, parts.pop("rocm").split(".")), 0)[:3]
    return ImageTag(text, (major, minor, patch), tuple(parts.values()))


def newest_patch(tag: str, listed: Iterable[str], entry: str, entries: Collection[str]) -> str:
    """Find the tag of the newest patch release that can replace `tag`; `tag` itself if there is none.

    Distribution, Python, torch and the matrix entry stay: if 6.2.4 has an entry, no image of 6.2 becomes one of 6.2.4.
    """
    own = parse_tag(tag)
    if own is None:
        return tag
    newer = [other for other in _parsed(listed, entry, entries) if other.kind == own.kind and other.rocm > own.rocm]
    return max(newer, key=lambda other: (other.rocm, other.text)).text if newer else tag


def additional_tags(tags: Collection[str], listed: Iterable[str], entry: str, entries: Collection[str]) -> list[str]:
    """Find tags of the entry's newest release, or a newer one, with a distribution, Python or torch new to `tags`."""
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
    """The facts of an image that identify its compiler and libraries."""

    @property
    def tag(self) -> str:
        """The literal tag."""

    @property
    def distribution(self) -> str:
        """The Linux distribution, such as ``ubuntu22.04``."""

    @property
    def glibc(self) -> str:
        """The glibc version."""


AnyImage = TypeVar("AnyImage", bound=ToolchainImage)


def rocm_release(image: ToolchainImage) -> tuple[int, ...]:
    """Parse the ROCm release in the tag of an image, such as ``(7, 1, 1)``; empty for an unknown pattern."""
    parsed = parse_tag(image.tag.rpartition(":")[2])
    return parsed.rocm if parsed else ()


def same_compiler_images(images: Sequence[AnyImage]) -> tuple[AnyImage, ...]:
    """Select the images of a ROCm entry that share a compiler: the newest release, on one distribution.

    Kernel objects are shared only between equal compilers with equal C and C++ libraries (`kernels.compiler.key`).
    Another compiler costs 20 to 60 CPU hours; another image with the torch of a cell saves only 18 GB of disk.
    """
    newest = max(map(rocm_release, images))
    if not newest:  # no tag names a release, so any could share a compiler; the key rejects kernels of another one
        return tuple(images)
    same = [image for image in images if rocm_release(image) == newest]
    # the oldest glibc, because a wheel runs on the glibc that it was compiled with and on newer ones
    system = min(same, key=lambda image: Version(image.glibc)).distribution
    return tuple(image for image in same if image.distribution == system)
