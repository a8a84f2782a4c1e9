"""Local versions: the label of a wheel, such as ``rocm62torch2.5triton``, and which torch is ``2.9.1+rocm6.4``.

All code that writes or parses a label, or finds the ROCm, the maker and the index of a torch. Part of doctor.py, so it
uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from wheelfactory.core.cell import AITER_NAME, Backend, Cell, major_minor, required_products
from wheelfactory.core.errors import InputError

_LABEL = re.compile(r"rocm(?:(\d)(\d)|(\d+)\.(\d+))torch(\d+)\.(\d+)(amd)?(triton)?(?:git([0-9a-f]{7}))?", re.ASCII)


IndexKey = tuple[str, ...]
"""The folders of an index: ROCm, torch and backend, which is ``ck-preview`` for previews; or `FALLBACK_INDEX`."""

FALLBACK_INDEX = ("fallback",)
"""The index with flash-attn that re-exports flash-attention-amd: apart, so that it never replaces kernels."""


def index_path(key: IndexKey) -> str:
    """The folder of an index below the site: ``simple/rocm64/torch2.9/ck``."""
    return "/".join(("simple", *key))


def is_own_aiter(version: str) -> bool:
    """Whether a version of aiter is one of this factory's: ``0.0.`` and the date of the commit."""
    return re.fullmatch(r"0\.0\.20\d{6}(\.post\d{1,3})?", version, re.ASCII) is not None


def name_aiter(version: str) -> str:
    """Return an installed aiter for a message, with who built it."""
    return f"{AITER_NAME} {version}, {'' if is_own_aiter(version) else 'not '}of this factory"


@dataclass(frozen=True)
class Label:
    """The parts of a local version; ROCm and torch as (major, minor)."""

    rocm: tuple[int, int]
    torch: tuple[int, int]
    backend: Backend
    commit: str = ""
    """Seven hex digits for a preview, which is built from a commit; empty for a release."""
    amd_torch: bool = False
    """Whether the wheel is for AMD's own build of torch, whose C++ symbols are not PyTorch's."""

    @property
    def rocm_version(self) -> str:
        """``6.2``."""
        return f"{self.rocm[0]}.{self.rocm[1]}"

    @property
    def torch_version(self) -> str:
        """``2.9``."""
        return f"{self.torch[0]}.{self.torch[1]}"

    @property
    def rocm_text(self) -> str:
        """``rocm62``, or ``rocm7.14`` if either number has two digits."""
        major, minor = self.rocm
        # without a dot, rocm710 is 7.10 or 71.0; bitsandbytes shipped that bug (#1890)
        return f"rocm{major}{minor}" if major < 10 and minor < 10 else f"rocm{self.rocm_version}"

    @property
    def torch_text(self) -> str:
        """``torch2.9``: major and minor only; ``torch2.9amd`` for AMD's own build."""
        # patch releases keep torch's C++ ABI
        return f"torch{self.torch_version}{'amd' if self.amd_torch else ''}"

    @property
    def torch_pin(self) -> str:
        """The requirement of a wheel on its torch; ``==X.Y.*`` also accepts the pre-releases in AMD's containers."""
        return f"torch=={self.torch_version}.*"

    @property
    def requires(self) -> tuple[str, ...]:
        """The names of the products that the wheel requires."""
        return required_products(self.backend, self.commit)

    @property
    def uses_aiter(self) -> bool:
        """Whether the wheel takes its kernels from aiter (see `Cell.uses_aiter`)."""
        return AITER_NAME in self.requires

    @property
    def requirements(self) -> tuple[str, ...]:
        """The requirements that the factory writes into METADATA."""
        # any version of a product, so that pip and uv keep an installed one: replacing AMD's aiter by ours would take
        # away its ROCm modules
        return (*(f"{name}>=0.0" for name in self.requires), self.torch_pin)

    @property
    def index_key(self) -> IndexKey:
        """The folders of the index that lists the wheel: ``("rocm64", "torch2.9", "ck")``."""
        # a preview has an index of its own: its version is newer than every release, so pip would choose it unasked
        return self.rocm_text, self.torch_text, f"{self.backend}-preview" if self.commit else str(self.backend)

    def describe(self, backend: str) -> str:
        """The parts for people, with this spelling of the backend: ``ROCm 7.2, torch 2.13, ck``."""
        torch = f"torch {self.torch_version}{' of AMD' if self.amd_torch else ''}"
        preview = f", preview (commit {self.commit})" if self.commit else ""
        return f"ROCm {self.rocm_version}, {torch}, {backend}{preview}"

    def __str__(self) -> str:
        suffix = "triton" if self.backend is Backend.TRITON else ""
        commit = f"git{self.commit}" if self.commit else ""
        return f"{self.rocm_text}{self.torch_text}{suffix}{commit}"

    @classmethod
    def from_cell(cls, cell: Cell) -> Label:
        """Create the label of a cell's wheel."""
        return cls(major_minor(cell.rocm), major_minor(cell.torch), cell.backend, cell.commit, cell.amd_torch)

    @classmethod
    def parse(cls, text: str) -> Label:
        """Parse a label, the inverse of `str`. Raises `InputError` if `text` is not a label."""
        if match := _LABEL.fullmatch(text):
            major, minor, dotted_major, dotted_minor, torch_major, torch_minor, amd, triton, commit = match.groups()
            rocm = int(major or dotted_major), int(minor or dotted_minor)
            backend = Backend.TRITON if triton else Backend.CK
            label = cls(rocm, (int(torch_major), int(torch_minor)), backend, commit or "", amd is not None)
            if str(label) == text:  # rocm7.4 parses, but rocm74 is the only spelling
                return label
        raise InputError("not a label of this factory", text, "a label looks like rocm62torch2.5triton")


class TorchOrigin(str, Enum):
    """Who built a torch."""

    PYTORCH = "PyTorch's release"
    NIGHTLY = "a PyTorch nightly"
    AMD = "AMD's build"
    AMD_NIGHTLY = "an AMD nightly"
    OTHER = "another build"
    """Built from source, by a Linux distribution, in an image."""


# PyTorch writes two numbers, except for ROCm 6.2.4; AMD three or more, with a commit in its images
_PYTORCH = re.compile(r"[\d.]+\+(rocm(?:6\.2\.4|\d+\.\d+)|cu\d+|cpu)")
_NIGHTLY = re.compile(r"\.dev\d{8}")
_AMD_NIGHTLY = re.compile(r"\+rocm\d+\.\d+\.\d+(?:a|rc|\.dev)\d")
_AMD = re.compile(r"\+rocm(\d+)\.(\d+)\.\d+")


def find_origin(version: str) -> TorchOrigin:
    """Return who built the torch of a version such as ``2.9.1+rocm6.4``."""
    if _PYTORCH.fullmatch(version):
        return TorchOrigin.PYTORCH
    if _NIGHTLY.search(version):
        return TorchOrigin.NIGHTLY
    if _AMD_NIGHTLY.search(version):
        return TorchOrigin.AMD_NIGHTLY
    return TorchOrigin.AMD if _AMD.search(version) else TorchOrigin.OTHER


def rocm_of_torch(
    version: str, hip: str | None, rocm: str | None = None, hips: Mapping[str, str] | None = None
) -> tuple[int, int] | None:
    """Return the ROCm of a torch as (major, minor); None if nothing names it.

    By its label, then `rocm` (``torch.version.rocm``), then `hip` (``torch.version.hip``): up to ROCm 7 both numbers
    are equal, later ones are in `hips`, the HIP by ROCm of matrix.yaml.
    """
    named = re.search(r"\+rocm(\d+\.\d+)", version)
    if named or rocm:
        return major_minor(named[1] if named else str(rocm))
    if not hip or not re.match(r"\d", hip):
        return None
    same = (name for name, number in (hips or {}).items() if major_minor(number) == major_minor(hip))
    return major_minor(next(same, hip))


def find_own_index(version: str, indexes: Mapping[str, str]) -> str | None:
    """Return the index that has a torch of this version and its Triton; None if no index is known to.

    `indexes`: PyTorch's index by ROCm. Source of AMD's: its documentation (ai-ecosystem, pytorch/install).
    """
    origin, found = find_origin(version), _AMD.search(version)
    if origin is TorchOrigin.PYTORCH:
        return indexes.get(version.partition("+rocm")[2])
    nightly = re.search(r"\+(rocm\d+\.\d+)$", version) if origin is TorchOrigin.NIGHTLY else None
    if nightly:
        return f"https://download.pytorch.org/whl/nightly/{nightly[1]}"
    if origin is TorchOrigin.AMD_NIGHTLY:
        return "https://rocm.nightlies.amd.com/whl-multi-arch/"
    # the images of rocm/pytorch add a commit, and have no index
    if found is None or not re.search(r"\+rocm[\d.]+$", version) or major_minor(".".join(found.groups())) < (7, 14):
        return None
    is_next = int(found[1]) >= 10
    return "https://stable.repo.amd.com/rocm/whl-next/" if is_next else "https://repo.amd.com/rocm/whl-multi-arch/"
