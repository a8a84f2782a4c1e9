"""Label: the local version of a wheel, such as ``rocm62torch2.5triton``; the only place that writes or reads one.

Needs nothing but the standard library of Python 3.9: the doctor takes it along.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from wheelfactory.core.cell import Backend, Cell, major_minor
from wheelfactory.core.errors import InputError

_LABEL = re.compile(
    r"rocm(?:(\d)(\d)|(\d+)\.(\d+))torch(\d+)\.(\d+)(triton)?(?:git([0-9a-f]{7}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Label:
    """What a local version says: ROCm and torch as (major, minor), the backend, and a commit if there is one."""

    rocm: tuple[int, int]
    torch: tuple[int, int]
    backend: Backend
    commit: str = ""
    """Seven hex digits when the wheel is built from a commit rather than a release."""

    @property
    def rocm_version(self) -> str:
        """The ROCm for a person: ``6.2``."""
        return f"{self.rocm[0]}.{self.rocm[1]}"

    @property
    def torch_version(self) -> str:
        """The torch for a person: ``2.9``."""
        return f"{self.torch[0]}.{self.torch[1]}"

    @property
    def rocm_text(self) -> str:
        """``rocm62``, or ``rocm7.14`` where a part has two digits.

        Without the dot ``rocm710`` could be 7.10 or 71.0, a bug that was shipped elsewhere (bitsandbytes #1890).
        """
        major, minor = self.rocm
        return f"rocm{major}{minor}" if major < 10 and minor < 10 else f"rocm{self.rocm_version}"

    @property
    def torch_text(self) -> str:
        """``torch2.9``: torch by major and minor, which is what its C++ interface is stable across."""
        return f"torch{self.torch_version}"

    @property
    def torch_pin(self) -> str:
        """The requirement that keeps a wheel to its torch; ``==X.Y.*`` takes pre-releases in containers too."""
        return f"torch=={self.torch_version}.*"

    def __str__(self) -> str:
        suffix = "triton" if self.backend is Backend.TRITON else ""
        commit = f"git{self.commit}" if self.commit else ""
        return f"{self.rocm_text}{self.torch_text}{suffix}{commit}"

    @classmethod
    def from_cell(cls, cell: Cell, commit: str = "") -> Label:
        """The label of the wheel that `cell` makes; `commit` is a full or short commit id, empty for a release."""
        return cls(major_minor(cell.rocm), major_minor(cell.torch), cell.backend, commit[:7])

    @classmethod
    def parse(cls, text: str) -> Label:
        """The label that reads as `text`; the inverse of `str`. Raises `InputError` for any other text."""
        if match := _LABEL.fullmatch(text):
            major, minor, dotted_major, dotted_minor, torch_major, torch_minor, triton, commit = match.groups()
            rocm = int(major or dotted_major), int(minor or dotted_minor)
            backend = Backend.TRITON if triton else Backend.CK
            label = cls(rocm, (int(torch_major), int(torch_minor)), backend, commit or "")
            if str(label) == text:
                return label
        raise InputError("not a label of this factory", text, "a label looks like rocm62torch2.5triton")
