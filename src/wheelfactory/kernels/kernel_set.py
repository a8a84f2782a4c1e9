"""Kernel sets: the cells whose CK kernels are the same compiled code, and the one name of each set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.image_tags import rocm_release, same_compiler_images

CACHE_VERSION = 1
"""To be raised when kernels come out differently though the matrix is the same: the factory hands other flags to the
compiler, or an image was changed under its tag. What was kept of them is then refused, and can never be replaced."""


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


def group_kernel_sets(matrix: Matrix, cells: Iterable[Cell]) -> tuple[KernelSet, ...]:
    """The sets that the CK cells among these need, in the order of each set's first cell."""
    shared: dict[tuple[str, str, tuple[str, ...], bool], list[Cell]] = {}
    for cell in cells:
        if cell.backend is Backend.CK:
            key = (cell.flash_attn, cell.rocm, matrix.archs(cell), matrix.torch[cell.torch].cxx11_abi)
            shared.setdefault(key, []).append(cell)
    return tuple(KernelSet(*key, tuple(members)) for key, members in shared.items())


def require_set(sets: Sequence[KernelSet], text: str) -> KernelSet:
    """The set with this id. Raises `InputError` that names the known ones."""
    by_id = {kernel_set.id: kernel_set for kernel_set in sets}
    if text not in by_id:
        raise InputError("no such kernel set", text, f"known: {', '.join(by_id) or 'none, no CK cell is selected'}")
    return by_id[text]


STORED_SET_PREFIX = "kernels-"
"""How the names of kept sets begin; on GitHub they are tags, and no release of wheels has such a one."""


def stored_set_name(matrix: Matrix, kernel_set: KernelSet, *, slim: bool = False) -> str:
    """The name under which a set is kept for later runs: ``kernels-<set id>-<12 hex digits>``.

    The digits stand for what decides the objects and is known before a compiler is: the pin of the sources, and the
    ROCm release and distribution of the images, or of the `slim` one. What this does not know of, the key of the
    archive does: it is refused then, and never linked.
    """
    rocm = matrix.rocm[kernel_set.rocm]
    images = (rocm.slim,) if slim and rocm.slim else same_compiler_images(rocm.images)
    systems = sorted({(".".join(map(str, rocm_release(image))) or image.tag, image.distribution) for image in images})
    facts = json.dumps([CACHE_VERSION, matrix.flash_attn[kernel_set.flash_attn].source_pin, systems])
    return f"{STORED_SET_PREFIX}{kernel_set.id}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
