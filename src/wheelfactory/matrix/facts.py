"""The facts that matrix.yaml holds, as frozen values; `load` makes them, nothing else does.

The keys of `flash-attn`, `torch` and `rocm` and the lists `python` and `backend` are the axes: an entry is
both the point on the axis and what is known about it, so adding a version is adding one entry.
"""

from __future__ import annotations

from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from pydantic import ConfigDict, Field, model_validator

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.label import Label
from wheelfactory.core.models import FrozenModel
from wheelfactory.matrix.forms import (
    AbsolutePath,
    Citation,
    Commit,
    Digest,
    DiskSize,
    GitTagName,
    ImageReference,
    IndexUrl,
    LinuxDistribution,
    OffloadArch,
    PlatformTag,
    ProjectName,
    PureWheelName,
    PythonVersion,
    Reason,
    Repository,
    SdistName,
    Sha256,
    SizeBand,
    TritonWindow,
    VersionText,
    Window,
    parse_size_band,
    value_error,
)
from wheelfactory.matrix.image_tags import same_compiler_images


class Fact(FrozenModel):
    """A mapping of matrix.yaml: no key but the named ones, no value of another type, never changed."""

    model_config = ConfigDict(strict=True, alias_generator=lambda name: name.replace("_", "-"))


class Sdist(Fact):
    """A source distribution on PyPI, pinned by the sha256 of the file."""

    file: SdistName
    sha256: Sha256


class GitTag(Fact):
    """A git tag with its submodules; `commit` pins what the tag must point to."""

    repository: Repository
    tag: GitTagName | None = None
    commit: Commit | None = None

    @model_validator(mode="after")
    def _names_something(self) -> GitTag:
        if self.tag is None and self.commit is None:
            raise value_error("names nothing to fetch", "add a tag, a commit, or both")
        return self


class CkBackend(Fact):
    """What the Composable Kernel backend of a release supports; upstream's setup.py asserts the arch list."""

    archs: tuple[OffloadArch, ...] = Field(min_length=1, strict=False)
    wheel_size: SizeBand
    source: Citation

    @property
    def wheel_bytes(self) -> range:
        """The sizes, in bytes, that its wheels can have; one outside lacks something or carries something."""
        return parse_size_band(self.wheel_size)


class TritonBackend(CkBackend):
    """What the Triton backend of a release supports: archs it is tuned for, and the Triton it works with."""

    window: TritonWindow


class FlashAttn(Fact):
    """One flash-attn release."""

    sdist: Sdist | None = None
    git: GitTag | None = None
    python: Window
    ck: CkBackend | None = None
    triton: TritonBackend | None = None
    source: Citation

    @model_validator(mode="after")
    def _has_one_origin(self) -> FlashAttn:
        if (self.sdist is None) == (self.git is None):
            raise value_error("must have one origin", "write either sdist or git")
        return self

    @property
    def label_commit(self) -> str:
        """The commit that the label must name: that of a build from a commit without a release tag."""
        return self.git.commit or "" if self.git and self.git.tag is None else ""

    @property
    def source_pin(self) -> str:
        """What identifies its sources before they are fetched: ``sha256:...``, ``commit:...``, or an unpinned tag."""
        if self.sdist:
            return f"sha256:{self.sdist.sha256}"
        return f"commit:{self.git.commit}" if self.git and self.git.commit else f"tag:{self.git and self.git.tag}"

    def backend(self, backend: Backend) -> CkBackend | None:
        """The facts of one backend, or None where the release does not have it."""
        return self.ck if backend is Backend.CK else self.triton


class Torch(Fact):
    """One torch release as PyTorch builds it for ROCm."""

    python: tuple[PythonVersion, ...] = Field(min_length=1, strict=False)
    triton: VersionText
    triton_package: Literal["pytorch-triton-rocm", "triton-rocm"]
    cxx11_abi: bool
    platform: PlatformTag
    source: Citation


class Image(Fact):
    """A container image by its literal tag; tags follow no one pattern, so none is computed."""

    tag: ImageReference
    digest: Digest | None = None
    distribution: LinuxDistribution
    glibc: VersionText
    python: PythonVersion
    python_path: AbsolutePath
    """The interpreter of that version, in the image."""
    rocm_path: AbsolutePath | None = None
    """Where ROCm is in the image; None where it has none that compiles, and ROCm comes as Python packages (7.14 on)."""
    torch: VersionText | None = None
    """The torch in the image; None for a slim one, which has none."""
    disk: DiskSize | None = None
    """What the image takes on disk, unpacked; None where nobody has said."""
    source: Citation

    @property
    def disk_gb(self) -> int | None:
        """The same as a number, in units of 10^9 bytes."""
        return int(self.disk.removesuffix(" GB")) if self.disk else None

    @property
    def reference(self) -> str:
        """The image as a registry is asked for it: by digest where that is known."""
        return f"{self.tag}@{self.digest}" if self.digest else self.tag


class Rocm(Fact):
    """One ROCm version: the torch releases on its index, the archs its torch is built for, its images."""

    torch: tuple[VersionText, ...] = Field(min_length=1, strict=False)
    index: IndexUrl
    archs: tuple[OffloadArch, ...] = Field(min_length=1, strict=False)
    images: tuple[Image, ...] = Field(min_length=1, strict=False)
    slim: Image | None = None
    """An image of the same ROCm without torch, for machines whose disk cannot hold the others."""
    source: Citation


class Dependency(Fact):
    """A pure wheel that flash-attn needs besides torch; every index carries it, so one index is enough."""

    version: VersionText
    wheel: PureWheelName
    sha256: Sha256
    source: Citation


class Exclusion(Fact):
    """Combinations that cannot work for a reason no other fact tells; an axis left out means every value."""

    flash_attn: Window | None = None
    python: Window | None = None
    torch: Window | None = None
    rocm: Window | None = None
    backend: Annotated[Backend, Field(strict=False)] | None = None
    reason: Reason
    source: Citation

    @property
    def axes(self) -> dict[str, str]:
        """The axes it names, with the versions it takes from them."""
        named = {"flash-attn": self.flash_attn, "python": self.python, "torch": self.torch, "rocm": self.rocm}
        return {axis: window for axis, window in named.items() if window is not None}

    @model_validator(mode="after")
    def _names_an_axis(self) -> Exclusion:
        if not self.axes and self.backend is None:
            raise value_error(
                "names no axis and would drop every cell", "add flash-attn, python, torch, rocm or backend"
            )
        return self


class Matrix(Fact):
    """Everything matrix.yaml says."""

    flash_attn: dict[VersionText, FlashAttn] = Field(min_length=1)
    python: tuple[PythonVersion, ...] = Field(min_length=1, strict=False)
    torch: dict[VersionText, Torch] = Field(min_length=1)
    rocm: dict[VersionText, Rocm] = Field(min_length=1)
    backend: tuple[Annotated[Backend, Field(strict=False)], ...] = Field(min_length=1, strict=False)
    dependencies: dict[ProjectName, Dependency] = Field(default_factory=dict)
    exclude: tuple[Exclusion, ...] = Field(default=(), strict=False)

    def image(self, cell: Cell, *, slim: bool = False) -> Image:
        """The image of a cell: the one with its torch and Python if there is one, else the first listed.

        Only those count that have one compiler, the same for all cells of a ROCm (`same_compiler_images`), so that its
        kernels are compiled once. The image is a toolchain; torch and Python are installed in it where it has others
        (facts: no image of ROCm 6.1 or 6.2 carries a torch that its index has). With `slim` it is the one without
        torch, where there is one: that is another compiler, and again one for all cells.
        """
        rocm = self.rocm[cell.rocm]
        if slim and rocm.slim:
            return rocm.slim

        def fit(image: Image) -> tuple[bool, bool]:
            return image.torch == cell.torch, image.python == cell.python

        return max(same_compiler_images(rocm.images), key=fit)

    def label(self, cell: Cell) -> Label:
        """The label of the wheel that a cell makes."""
        return Label.from_cell(cell, self.flash_attn[cell.flash_attn].label_commit)

    def archs(self, cell: Cell) -> tuple[str, ...]:
        """The offload archs that the wheel of a cell promises: those the release accepts and that torch has."""
        return common_archs(self.flash_attn[cell.flash_attn], self.rocm[cell.rocm], cell.backend)


def common_archs(release: FlashAttn, rocm: Rocm, backend: Backend) -> tuple[str, ...]:
    """The archs that a release's backend supports and that torch for this ROCm is built for, in the release's order."""
    facts = release.backend(backend)
    return tuple(arch for arch in facts.archs if arch in rocm.archs) if facts else ()


def in_window(window: str, version: str) -> bool:
    """Whether a `Window` of the matrix has a version; pre-releases count as any other."""
    return SpecifierSet(window).contains(version, prereleases=True)
