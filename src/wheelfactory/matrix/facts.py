"""The model of matrix.yaml; use `load` to read one.

The keys of `flash-attn`, `torch` and `rocm` and the lists `python` and `backend` are the axes. An entry is both a
value of its axis and the facts about it, so a new version needs one new entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Literal

from pydantic import Field, model_validator

from wheelfactory.core.cell import ANY_PYTHON, Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.matrix.forms import (
    BuildNumber,
    Citation,
    CxxStandard,
    FlashAttnVersion,
    GeneratorDirection,
    GeneratorPattern,
    IndexUrl,
    OffloadArch,
    PlatformTag,
    ProjectName,
    PythonVersion,
    Reason,
    RocmVersion,
    Sha256,
    SizeBand,
    TritonWindow,
    VersionText,
    Window,
    parse_size_band,
    value_error,
)
from wheelfactory.matrix.origins import (
    Dependency,
    Fact,
    GitTag,
    Image,
    Sdist,
    has_amd_torch,
    newest_images,
    same_compiler_images,
)


class BackendFacts(Fact):
    """The facts of a backend of a release."""

    archs: tuple[OffloadArch, ...] = Field(min_length=1, strict=False)
    wheel_size: SizeBand
    source: Citation

    @property
    def wheel_bytes(self) -> range:
        """The expected sizes of its wheels in bytes; outside them, a wheel lacks kernels or bundles libraries."""
        return parse_size_band(self.wheel_size)


class GeneratorFilter(Fact):
    """A value for the generator's own option ``--filter``, and the direction (``-d``) that it is added to."""

    direction: GeneratorDirection
    filter: GeneratorPattern


class Trim(Fact):
    """The filters that leave out kernels which no binding can call; used only for sources that they are proved for."""

    filters: tuple[GeneratorFilter, ...] = Field(min_length=1, strict=False)
    proof: Sha256 | None = None
    """The digest of the sources and filters that were proved (`scripts/refresh_kernel_sources.py`); None to leave
    nothing out."""
    source: Citation

    @model_validator(mode="after")
    def _check_directions(self) -> Trim:
        directions = [item.direction for item in self.filters]
        for direction in directions:
            if directions.count(direction) > 1:
                raise value_error(f"has two filters for {direction}", "write one filter for each direction")
        return self


class CkBackend(BackendFacts):
    """The facts of the Composable Kernel backend of a release; upstream's setup.py asserts the arch list."""

    cxx_standard: CxxStandard = "17"
    """The C++ standard with which setup.py compiles."""
    may_work: dict[OffloadArch, Reason] = Field(default_factory=dict)
    """Archs of the list whose kernels compile, and that nobody has proved, each with what is known."""
    trim: Trim | None = None
    """What to leave out; None to compile everything that setup.py generates."""


class TritonBackend(BackendFacts):
    """The facts of the Triton backend of a release: the archs it is tuned for, and the Triton versions it needs."""

    window: TritonWindow
    may_work: dict[OffloadArch, Reason] = Field(default_factory=dict)
    """Archs outside the list that may work, each with what is known."""
    fails: dict[OffloadArch, Reason] = Field(default_factory=dict)
    """Archs whose kernels fail, each with how."""


class Build(Fact):
    """A later build of a release from the same sources: published wheels keep their names, so its wheels get others."""

    number: BuildNumber
    """The build tag of the wheels; pip and uv prefer the largest."""
    reason: Reason
    """What wheels of earlier builds lack, shown beside them."""


class FlashAttn(Fact):
    """One flash-attn release."""

    sdist: Sdist | None = None
    git: GitTag | None = None
    kernel_sources: Sha256 | None = None
    """The digest of what its CK kernels are compiled from; None if unknown. Equal ones share kernel sets."""
    python: Window
    torch: Window | None = None
    """The torch releases that it is built for; None for all."""
    ck: CkBackend | None = None
    triton: TritonBackend | None = None
    build: Build | None = None
    """Which build of the release is made; None for the first."""
    source: Citation

    @model_validator(mode="after")
    def _check_one_origin(self) -> FlashAttn:
        if (self.sdist is None) == (self.git is None):
            raise value_error("must have one origin", "write either sdist or git")
        return self

    @property
    def source_pin(self) -> str:
        """The identity of its sources before a download: ``sha256:...``, ``commit:...``, or ``tag:...`` if unpinned."""
        if self.sdist:
            return f"sha256:{self.sdist.sha256}"
        return f"commit:{self.git.commit}" if self.git and self.git.commit else f"tag:{self.git and self.git.tag}"

    @property
    def trim(self) -> Trim | None:
        """The filters of its CK backend with their proof; None if it is never trimmed."""
        return self.ck.trim if self.ck else None

    @property
    def filters(self) -> tuple[GeneratorFilter, ...]:
        """The filters of its CK backend; empty if it is never trimmed."""
        return self.trim.filters if self.trim else ()

    def backend(self, backend: Backend) -> BackendFacts | None:
        """The facts of a backend; None if the release lacks it."""
        return self.ck if backend is Backend.CK else self.triton


class Torch(Fact):
    """One torch release as PyTorch builds it for ROCm."""

    python: tuple[PythonVersion, ...] = Field(min_length=1, strict=False)
    triton: VersionText
    triton_package: Literal["pytorch-triton-rocm", "triton-rocm"]
    cxx11_abi: bool
    cxx_standard: CxxStandard = "17"
    """The C++ standard that its headers need."""
    platform: PlatformTag
    source: Citation


class Rocm(Fact):
    """One ROCm version: the torch releases on its index, the archs of its torch builds, its images."""

    torch: tuple[VersionText, ...] = Field(min_length=1, strict=False)
    index: IndexUrl
    archs: tuple[OffloadArch, ...] = Field(min_length=1, strict=False)
    may_work: dict[OffloadArch, Reason] = Field(default_factory=dict)
    """Other archs that some of these torch builds have code for."""
    images: tuple[Image, ...] = Field(min_length=1, strict=False)
    slim: Image | None = None
    """An image of the same ROCm without torch, for machines with little disk space."""
    source: Citation


class Hip(Fact):
    """The HIP of one ROCm: ``torch.version.hip`` of a torch built for it begins with it."""

    version: VersionText
    source: Citation


class Exclusion(Fact):
    """Combinations that cannot work, for a reason that no other fact shows; a missing axis means every value."""

    flash_attn: Window | None = None
    python: Window | None = None
    torch: Window | None = None
    rocm: Window | None = None
    backend: Annotated[Backend, Field(strict=False)] | None = None
    reason: Reason
    source: Citation

    @property
    def axes(self) -> dict[str, str]:
        """The version ranges it excludes, by axis."""
        windows = {"flash-attn": self.flash_attn, "python": self.python, "torch": self.torch, "rocm": self.rocm}
        return {axis: window for axis, window in windows.items() if window is not None}

    @model_validator(mode="after")
    def _check_has_axis(self) -> Exclusion:
        if not self.axes and self.backend is None:
            hint = "add flash-attn, python, torch, rocm or backend"
            raise value_error("names no axis and would drop every cell", hint)
        return self


class Matrix(Fact):
    """The content of matrix.yaml."""

    flash_attn: dict[FlashAttnVersion, FlashAttn] = Field(min_length=1)
    python: tuple[PythonVersion, ...] = Field(min_length=1, strict=False)
    torch: dict[VersionText, Torch] = Field(min_length=1)
    rocm: dict[RocmVersion, Rocm] = Field(min_length=1)
    hip: dict[RocmVersion, Hip] = Field(default_factory=dict)
    """Also of ROCm versions that are not built, so that their torch is recognized."""
    backend: tuple[Annotated[Backend, Field(strict=False)], ...] = Field(min_length=1, strict=False)
    dependencies: dict[ProjectName, Dependency] = Field(default_factory=dict)
    exclude: tuple[Exclusion, ...] = Field(default=(), strict=False)

    def __hash__(self) -> int:
        return hash((*self.flash_attn, *self.python, *self.torch, *self.rocm))  # the mappings themselves have no hash

    def image(self, cell: Cell, *, slim: bool = False) -> Image:
        """Choose the image of a cell: the image that has AMD's torch; for PyTorch's the best match, else the first.

        With `slim`, the image without torch if the ROCm entry has one.
        """
        rocm = self.rocm[cell.rocm]
        if slim and rocm.slim and not cell.amd_torch:  # another compiler, but again the same for all cells of the ROCm
            return rocm.slim

        def fit(image: Image) -> tuple[bool, bool]:
            return image.torch == cell.torch, image.python == cell.python

        # one compiler for all cells of a ROCm compiles its kernels once; a build installs PyTorch's torch beside AMD's
        return max(newest_images(rocm.images) if cell.amd_torch else same_compiler_images(rocm.images), key=fit)

    def has_torch(self, cell: Cell, image: Image) -> bool:
        """Whether an image has the torch of a cell and its Python, by the same builder, with a ROCm that compiles."""
        # without ROCm in the image, ROCm comes as Python packages that torch's index has, together with torch; and only
        # PyTorch itself built torch with the old C++ ABI, up to 2.5
        same = image.torch == cell.torch and cell.python in (image.python, ANY_PYTHON)
        is_usable = image.rocm_path is not None and self.cxx11_abi(cell)
        return same and is_usable and has_amd_torch(image) is cell.amd_torch

    def cxx11_abi(self, cell: Cell) -> bool:
        """Whether the torch of a cell uses the new C++ ABI: AMD's images do, and PyTorch's builds from 2.6 on."""
        return cell.amd_torch or self.torch[cell.torch].cxx11_abi

    def build_tag(self, cell: Cell, replacement: int = 0) -> str | None:
        """The build tag of the wheel of a cell; None for the first build of a release that replaces no wheel.

        A `replacement` has a letter, as a larger number would be a later build. Installers prefer either.
        """
        release = self.flash_attn.get(cell.flash_attn)
        number = release.build.number if release and release.build else None
        return f"{number or 0}{ascii_lowercase[replacement - 1]}" if replacement else number

    def archs(self, cell: Cell) -> tuple[str, ...]:
        """The offload archs of the wheel of a cell: those that both the release and its torch support."""
        return common_archs(self.flash_attn[cell.flash_attn], self.rocm[cell.rocm], cell.backend)


def common_archs(release: FlashAttn, rocm: Rocm, backend: Backend) -> tuple[str, ...]:
    """The archs that both a release's backend and torch for this ROCm support, in the release's order."""
    facts = release.backend(backend)
    return tuple(arch for arch in facts.archs if arch in rocm.archs) if facts else ()


@dataclass(frozen=True)
class Context:
    """What a command reads once. Stages that need most of it take it whole; leaves take what they need."""

    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    """Of the process of the command."""
    cache: Path
    replacements: Mapping[str, int] = field(default_factory=dict)
    """Which replacement of a published wheel is built, by cell id (`manifest.next_replacements`)."""
