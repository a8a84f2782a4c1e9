"""Kernel sets: the cells whose CK kernels are the same compiled code, and the one name of each set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wheelfactory.cell import Backend, Cell
from wheelfactory.errors import InputError
from wheelfactory.matrix import Matrix


@dataclass(frozen=True)
class KernelSet:
    """CK kernels compiled once, and the cells that link them.

    The generated sources include neither torch nor Python, so what is left is the release, the ROCm whose compiler
    and flags they get, the archs, and the C++ ABI, which names symbols that pass a `std::string`.
    """

    flash_attn: str
    rocm: str
    archs: tuple[str, ...]
    cxx11_abi: bool
    cells: tuple[Cell, ...]
    """In the order of the matrix; any of them, so the first, can tell setup.py how to compile the set."""

    @property
    def id(self) -> str:
        """The name of the set, such as ``fa2.8.3-rocm6.4-gfx90a_gfx942-cxx11``."""
        abi = "cxx11" if self.cxx11_abi else "precxx11"
        return f"fa{self.flash_attn}-rocm{self.rocm}-{'_'.join(self.archs)}-{abi}"


def kernel_sets(matrix: Matrix, cells: Iterable[Cell]) -> tuple[KernelSet, ...]:
    """The sets that the CK cells among these need, in the order of each set's first cell."""
    shared: dict[tuple[str, str, tuple[str, ...], bool], list[Cell]] = {}
    for cell in cells:
        if cell.backend is Backend.CK:
            key = (cell.flash_attn, cell.rocm, matrix.archs(cell), matrix.torch[cell.torch].cxx11_abi)
            shared.setdefault(key, []).append(cell)
    return tuple(KernelSet(*key, tuple(members)) for key, members in shared.items())


def require_set(sets: Sequence[KernelSet], text: str) -> KernelSet:
    """The set with this id. Raises `InputError` that names the known ones."""
    for kernel_set in sets:
        if kernel_set.id == text:
            return kernel_set
    known = ", ".join(kernel_set.id for kernel_set in sets) or "none, no CK cell is selected"
    raise InputError("no such kernel set", text, f"known: {known}")
