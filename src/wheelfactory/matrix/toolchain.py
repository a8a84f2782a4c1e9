"""The images of a ROCm entry -> those that have one and the same compiler, so that its kernels are compiled once.

A cell takes an object only if its compiler has the same content and finds the C and C++ library of the same version
(`kernels.compiler.key`), so both the ROCm release and the distribution must be one. What that saves are 20 to 60 CPU
hours for each image beyond the first; what it costs is 18 GB of disk where another image would have had the torch of a
cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from packaging.version import Version

from wheelfactory.matrix.tags import parse_tag


class Toolchain(Protocol):
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


AnyImage = TypeVar("AnyImage", bound=Toolchain)


def release_of(image: Toolchain) -> tuple[int, ...]:
    """The ROCm release that the tag of an image says, such as ``(7, 1, 1)``; empty if it says none."""
    parsed = parse_tag(image.tag.rpartition(":")[2])
    return parsed.rocm if parsed else ()


def with_one_compiler(images: Sequence[AnyImage]) -> tuple[AnyImage, ...]:
    """Those of the newest release, on the distribution with the oldest glibc that it is there for.

    The oldest, because a wheel runs on the glibc that it was compiled with and on newer ones. An image whose tag says
    no release is left out where another one's does, as its compiler may be any. Where none does, all are taken: nothing
    tells which of them are alike, and kernels of a compiler that is not are refused by their key.
    """
    newest = max(map(release_of, images))
    if not newest:
        return tuple(images)
    same = [image for image in images if release_of(image) == newest]
    system = min(same, key=lambda image: Version(image.glibc)).distribution
    return tuple(image for image in same if image.distribution == system)
