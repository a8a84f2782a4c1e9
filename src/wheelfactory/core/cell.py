"""Cell: everything that must be known to name one wheel, and the cell id, its one name everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from wheelfactory.core.errors import InputError

FALLBACK_NAME = "flash-attention-amd"
"""The project whose wheel is of no cell: its normalized name, and the word for it on the command line."""

ANY_PYTHON = "3"
"""The Python of a wheel without an extension module: its tag is ``py3``."""

_ID = re.compile(
    r"fa(?P<flash_attn>[0-9][0-9a-z.]*)-rocm(?P<rocm>[0-9][0-9a-z.]*)-torch(?P<torch>[0-9][0-9a-z.]*)"
    r"-(?:cp3(?P<minor>[1-9][0-9]*)|py3)-(?P<backend>ck|triton)"
)


class Backend(str, Enum):
    """The kernels a wheel is built with: compiled Composable Kernel code, or Triton source."""

    CK = "ck"
    TRITON = "triton"

    def __str__(self) -> str:
        return self.value

    @property
    def display_name(self) -> str:
        """As people write it: ``CK``, ``Triton``."""
        return "CK" if self is Backend.CK else "Triton"


@dataclass(frozen=True)
class Cell:
    """One wheel to build: versions are strings as matrix.yaml writes them (``2.10`` is not ``2.1``)."""

    flash_attn: str
    python: str
    """``3.11``, or `ANY_PYTHON` for the one wheel that a Triton cell makes for every Python."""
    torch: str
    rocm: str
    backend: Backend

    @property
    def python_tag(self) -> str:
        """The wheel's python tag: ``cp311``, or ``py3`` where no extension module is compiled."""
        return "py3" if self.python == ANY_PYTHON else "cp" + self.python.replace(".", "")

    @property
    def id(self) -> str:
        """The cell id, such as ``fa2.8.3-rocm6.4-torch2.9.1-cp311-ck``: job, artifact, log and selector name."""
        return f"fa{self.flash_attn}-rocm{self.rocm}-torch{self.torch}-{self.python_tag}-{self.backend}"

    @classmethod
    def from_axes(cls, flash_attn: str, python: str, torch: str, rocm: str, backend: Backend) -> Cell:
        """The cell that a combination of the five axes belongs to.

        A Triton wheel holds no compiled code and is built once for every Python (facts: it comes out of
        upstream's setup.py as ``py3-none-any``), so its Python axis collapses.
        """
        return cls(flash_attn, ANY_PYTHON if backend is Backend.TRITON else python, torch, rocm, backend)

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell of a cell id; the inverse of `id`. Raises `InputError` for anything else."""
        match = _ID.fullmatch(text)
        if match is None:
            raise InputError(
                "not a cell id",
                text,
                "a cell id looks like fa2.8.3-rocm6.4-torch2.9.1-cp311-ck; `wheelfactory matrix` lists them",
            )
        python = f"3.{match['minor']}" if match["minor"] else ANY_PYTHON
        return cls(match["flash_attn"], python, match["torch"], match["rocm"], Backend(match["backend"]))


def same_rocm(one: str, other: str) -> bool:
    """Whether two ROCm (or HIP) versions agree as far as a wheel cares: in major and minor."""
    return one.split(".")[:2] == other.split(".")[:2]


def major_minor(version: str) -> tuple[int, int]:
    """The first two numbers of a version: ``2.9.1`` is (2, 9), ``7.14.0a2`` (7, 14), and ``7`` (7, 0)."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version, re.ASCII)
    assert numbers, version  # cells and torch name nothing else
    return int(numbers[1]), int(numbers[2] or 0)
