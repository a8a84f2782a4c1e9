"""What entries of matrix.yaml name: pinned sources, wheels and container images, and what a tag of AMD says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import Version
from pydantic import ConfigDict, model_validator

from wheelfactory.core.models import FrozenModel
from wheelfactory.matrix.forms import (
    AbsolutePath,
    Citation,
    Commit,
    Digest,
    DiskSize,
    GitTagName,
    GlibcVersion,
    ImageReference,
    LinuxDistribution,
    PureWheelName,
    PythonVersion,
    Repository,
    SdistName,
    Sha256,
    SourcePath,
    VersionText,
    value_error,
)


class Fact(FrozenModel):
    """A mapping of matrix.yaml: immutable, without unknown keys or type conversions."""

    model_config = ConfigDict(strict=True, alias_generator=lambda name: name.replace("_", "-"))


class Sdist(Fact):
    """A source distribution on PyPI, pinned by the sha256 of the file."""

    file: SdistName
    sha256: Sha256


class GitTag(Fact):
    """A git tag or commit with its submodules; with both, the tag must point to the commit."""

    repository: Repository
    tag: GitTagName | None = None
    commit: Commit | None = None
    submodules: dict[SourcePath, Commit] | None = None
    """The submodules that a build needs, with their commits; None for all of them, at the commits of the tag."""

    @model_validator(mode="after")
    def _check_tag_or_commit(self) -> GitTag:
        if self.tag is None and self.commit is None:
            raise value_error("has neither a tag nor a commit", "add a tag, a commit, or both")
        return self


class Dependency(Fact):
    """A pure wheel that flash-attn needs besides torch: a file on PyPI, or built from a commit."""

    version: VersionText
    wheel: PureWheelName
    sha256: Sha256 | None = None
    """Of the file on PyPI."""
    git: GitTag | None = None
    """What the factory builds it from."""
    source: Citation

    @model_validator(mode="after")
    def _check_one_origin(self) -> Dependency:
        if (self.sha256 is None) == (self.git is None):
            raise value_error("must have one origin", "write either the sha256 of a file on PyPI or git")
        if self.git and self.git.commit is None:
            raise value_error("has a tag that can move", "add the commit to git")
        return self


# rocm/pytorch tags have had three spellings: release_, release- and neither
_PYTORCH = re.compile(
    "rocm(?P<rocm>[0-9]+[.][0-9]+([.][0-9]+)?)"
    "_(?P<system>ubuntu[0-9]{2}[.][0-9]{2})_(?P<python>py3[.][0-9]+)_pytorch_(release[_-])?(?P<torch>[0-9.]+)"
)
# rocm/dev-* tags
_DEVELOPMENT = re.compile("(?P<rocm>[0-9]+[.][0-9]+([.][0-9]+)?)-(?P<extent>complete|full)")


@dataclass(frozen=True)
class ImageTag:
    """A parsed tag of one of AMD's patterns."""

    text: str
    rocm: tuple[int, int, int]
    """The release; tags omit a patch of 0."""
    kind: tuple[str, ...]
    """The rest: distribution, Python and torch, or the extent of the ROCm installation."""


def parse_tag(text: str) -> ImageTag | None:
    """Parse a tag; None if it follows no pattern of AMD."""
    found = _PYTORCH.fullmatch(text) or _DEVELOPMENT.fullmatch(text)
    if not found:
        return None
    parts = found.groupdict()
    major, minor, patch = (*map(int, parts.pop("rocm").split(".")), 0)[:3]
    return ImageTag(text, (major, minor, patch), tuple(parts.values()))


class Image(Fact):
    """A container image by its literal tag; tags follow no single pattern, so none is computed."""

    tag: ImageReference
    digest: Digest | None = None
    distribution: LinuxDistribution
    glibc: GlibcVersion
    python: PythonVersion
    python_path: AbsolutePath
    """The path in the image of the interpreter of that version."""
    rocm_path: AbsolutePath | None = None
    """The ROCm folder in the image; None if it cannot compile, so that Python packages provide ROCm (7.14 on)."""
    torch: VersionText | None = None
    """The torch in the image; None for a slim image, which has no torch."""
    disk: DiskSize | None = None
    """The unpacked size, as text; None if unknown."""
    source: Citation

    @property
    def disk_gb(self) -> int | None:
        """The unpacked size in GB (10^9 bytes)."""
        return int(self.disk.removesuffix(" GB")) if self.disk else None

    @property
    def reference(self) -> str:
        """The reference to pull: by digest if it is known."""
        return f"{self.tag}@{self.digest}" if self.digest else self.tag


def has_amd_torch(image: Image) -> bool:
    """Whether an image has AMD's own build of torch, as every release of rocm/pytorch has."""
    repository, _, tag = image.tag.rpartition(":")
    return repository == "rocm/pytorch" and _PYTORCH.fullmatch(tag) is not None


def rocm_release(image: Image) -> tuple[int, ...]:
    """Parse the ROCm release in the tag of an image, such as ``(7, 1, 1)``; empty for an unknown pattern."""
    parsed = parse_tag(image.tag.rpartition(":")[2])
    return parsed.rocm if parsed else ()


def newest_images(images: Sequence[Image]) -> tuple[Image, ...]:
    """Select the images of the newest release of a ROCm entry, on every distribution; all if no tag names a release.

    Each can link the kernels that `same_compiler_images` compile, whose glibc is the oldest.
    """
    newest = max(map(rocm_release, images))
    return tuple(image for image in images if rocm_release(image) == newest)


def same_compiler_images(images: Sequence[Image]) -> tuple[Image, ...]:
    """Select the images of a ROCm entry that share a compiler: the newest release, on one distribution.

    Kernel objects are shared only between equal compilers with equal C and C++ libraries (`kernels.compiler.key`).
    Another compiler costs 20 to 60 CPU hours; another image with the torch of a cell saves only 18 GB of disk.
    """
    same = newest_images(images)
    if not rocm_release(same[0]):  # no tag names one, so any could share a compiler; the key rejects another's kernels
        return same
    # the oldest glibc, because a wheel runs on the glibc that it was compiled with and on newer ones
    system = min(same, key=lambda image: Version(image.glibc)).distribution
    return tuple(image for image in same if image.distribution == system)
