"""Kernel sets: groups of cells that share the same compiled CK kernels, and the names of these sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.image_tags import rocm_release, same_compiler_images

# increment when the same matrix gives different kernels: wheelfactory passes different flags, or an image changed
# behind its tag. Sets stored under the old version would fail the key check, and a stored archive is never replaced
CACHE_VERSION = 1


@dataclass(frozen=True)
class KernelSet:
    """CK kernels compiled once, and the cells that link them.

    The generated sources include neither torch nor Python. Their objects depend on the release, on ROCm's compiler and
    flags, on the archs, and on the C++ ABI, which changes the names of symbols that pass a `std::string`.
    """

    flash_attn: str
    rocm: str
    archs: tuple[str, ...]
    cxx11_abi: bool
    cells: tuple[Cell, ...]
    """In matrix order. Running setup.py for any one of them compiles the set."""

    @property
    def id(self) -> str:
        """Such as ``fa2.8.3-rocm6.4-gfx90a_gfx942-cxx11``."""
        abi = "cxx11" if self.cxx11_abi else "precxx11"
        return f"fa{self.flash_attn}-rocm{self.rocm}-{'_'.join(self.archs)}-{abi}"


def group_kernel_sets(matrix: Matrix, cells: Iterable[Cell]) -> tuple[KernelSet, ...]:
    """Group the CK cells into kernel sets, in the order of each set's first cell."""
    shared: dict[tuple[str, str, tuple[str, ...], bool], list[Cell]] = {}
    for cell in cells:
        if cell.backend is Backend.CK:
            key = (cell.flash_attn, cell.rocm, matrix.archs(cell), matrix.torch[cell.torch].cxx11_abi)
            shared.setdefault(key, []).append(cell)
    return tuple(KernelSet(*key, tuple(members)) for key, members in shared.items())


def require_set(sets: Sequence[KernelSet], text: str) -> KernelSet:
    """Find the set with this id. Raises `InputError` if there is none."""
    by_id = {kernel_set.id: kernel_set for kernel_set in sets}
    if text not in by_id:
        hint = (
            "run `wheelfactory plan` to list the kernel sets"
            if sets
            else "no CK cell is selected, so there are no kernel sets"
        )
        raise InputError("unknown kernel set", text, hint)
    return by_id[text]


# prefix of the names of stored sets. On GitHub these names are tags; tags of wheel releases must not start with it
STORED_SET_PREFIX = "kernels-"


def stored_set_name(matrix: Matrix, kernel_set: KernelSet, *, slim: bool = False) -> str:
    """The name under which archive hosts store a set: ``kernels-<set id>-<12 hex digits>``.

    The digits are a hash over everything that affects the objects and is known without a compiler: the pin of the
    sources, the filters that leave some out, and the ROCm release and distribution of the images, or of the `slim`
    image.
    """
    # the hash can be incomplete: an archive whose key does not match the compiler is rejected, never linked
    rocm = matrix.rocm[kernel_set.rocm]
    images = (rocm.slim,) if slim and rocm.slim else same_compiler_images(rocm.images)
    systems = sorted({(".".join(map(str, rocm_release(image))) or image.tag, image.distribution) for image in images})
    release = matrix.flash_attn[kernel_set.flash_attn]
    filters = [item.model_dump() for item in release.trim]
    facts = json.dumps([CACHE_VERSION, release.source_pin, systems, *filters])
    return f"{STORED_SET_PREFIX}{kernel_set.id}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
