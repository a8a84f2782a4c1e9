"""Label: the local version of a wheel, such as ``rocm62torch2.5triton``. All code that writes or parses one.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
