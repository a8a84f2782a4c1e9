"""Kernel sets: groups of cells that share the same compiled CK kernels, and the names of these sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.origins import rocm_release, same_compiler_images

# increment when the same matrix gives different kernels: wheelfactory passes different flags, or an image changed
# behind its tag. Sets stored under the old version would fail the key check, and a stored archive is never replaced
CACHE_VERSION = 1


@dataclass(frozen=True)
class KernelSet:
    """CK kernels compiled once, and the cells that link them: the device code of one arch, or the host code of one ABI.

    The generated sources include neither torch nor Python. Their objects depend on the sources and on ROCm's compiler
    and flags. Only host code depends on the C++ ABI, which changes the names of symbols that pass a `std::string`.
    """

    sources: str
    """What is compiled (`sources_name`), which several releases can share."""
    rocm: str
    archs: tuple[str, ...]
    """The arch of device code; empty for host code."""
    cxx11_abi: bool | None
    """The C++ ABI of host code; None for device code."""
    cells: tuple[Cell, ...] = ()
    """In matrix order. Running setup.py for any one of them compiles the set."""

    @property
    def id(self) -> str:
        """Such as ``ck-62327233-rocm6.4-gfx942`` or ``ck-62327233-rocm6.4-cxx11``."""
        abi = {None: "", True: "cxx11", False: "precxx11"}[self.cxx11_abi]
        return "-".join([self.sources, f"rocm{self.rocm}", *filter(None, ["_".join(self.archs), abi])])

    @property
    def targets(self) -> tuple[str, ...]:
        """What the sources are compiled for: archs, and `HOST` if the set has host code."""
        return self.archs if self.cxx11_abi is None else (*self.archs, HOST)

    @property
    def releases(self) -> tuple[str, ...]:
        """The flash-attn versions of the cells, in matrix order. The kernels of each are the same."""
        return tuple(dict.fromkeys(cell.flash_attn for cell in self.cells))


def sources_name(matrix: Matrix, flash_attn: str) -> str:
    """Name what the kernels of a release are compiled from: ``ck-62327233`` by digest, or ``fa2.6.3`` without one."""
    digest = matrix.flash_attn[flash_attn].kernel_sources
    return f"ck-{digest[:8]}" if digest else f"fa{flash_attn}"


def group_kernel_sets(matrix: Matrix, cells: Iterable[Cell]) -> tuple[KernelSet, ...]:
    """Group the CK cells into kernel sets, in the order of each set's first cell: its archs, then its host code."""
    shared: dict[KernelSet, list[Cell]] = {}
    for cell in cells:
        for kernel_set in _sets_of(matrix, cell, matrix.archs(cell)):
            shared.setdefault(kernel_set, []).append(cell)
    return tuple(replace(kernel_set, cells=tuple(members)) for kernel_set, members in shared.items())


def sets_of_cell(matrix: Matrix, cell: Cell, archs: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Return the ids of the kernel sets that a cell links, for `archs` or all archs of the cell; none for Triton."""
    return tuple(kernel_set.id for kernel_set in _sets_of(matrix, cell, matrix.archs(cell) if archs is None else archs))


def _sets_of(matrix: Matrix, cell: Cell, archs: tuple[str, ...]) -> Iterator[KernelSet]:
    """Yield the sets that a cell links, without cells."""
    if cell.backend is Backend.CK:
        sources = sources_name(matrix, cell.flash_attn)
        for arch in archs:
            yield KernelSet(sources, cell.rocm, (arch,), None)
        yield KernelSet(sources, cell.rocm, (), matrix.cxx11_abi(cell))


def require_set(sets: Sequence[KernelSet], text: str) -> KernelSet:
    """Find the set with this id. Raises `InputError` if there is none."""
    by_id = {kernel_set.id: kernel_set for kernel_set in sets}
    if text not in by_id:
        hint = "run `wheelfactory plan --all` to list the kernel sets"
        if not sets:
            hint = "no CK cell is selected, so there are no kernel sets"
        raise InputError("unknown kernel set", text, hint)
    return by_id[text]


def find_host_sets(sets: Iterable[KernelSet], kernel_set: KernelSet) -> tuple[KernelSet, ...]:
    """Find the sets with host code of the same sources, one for each C++ ABI; none for a set of host code."""
    wanted = (kernel_set.sources, kernel_set.rocm, ())
    return tuple(each for each in sets if kernel_set.archs and (each.sources, each.rocm, each.archs) == wanted)


# prefix of the names of stored sets. On GitHub these names are tags; tags of wheel releases must not start with it
STORED_SET_PREFIX = "kernels-"


def stored_set_name(matrix: Matrix, kernel_set: KernelSet, *, slim: bool = False) -> str:
    """The name under which archive hosts store a set: ``kernels-<set id>-<12 hex digits>``.

    The digits are a hash over everything that affects the objects and is known without a compiler: the digest of the
    kernel sources (else the pin of all sources, and the archs that they are generated for), the filters that leave some
    out, and the ROCm release and distribution of the images, or of the `slim` image.
    """
    # the hash can be incomplete: an archive whose key does not match the compiler is rejected, never linked
    rocm = matrix.rocm[kernel_set.rocm]
    images = (rocm.slim,) if slim and rocm.slim else same_compiler_images(rocm.images)
    systems = sorted({(".".join(map(str, rocm_release(image))) or image.tag, image.distribution) for image in images})
    release = matrix.flash_attn[kernel_set.releases[0]]
    filters = [item.model_dump() for item in release.filters]
    sources = release.kernel_sources or [release.source_pin, *matrix.archs(kernel_set.cells[0])]
    facts = json.dumps([CACHE_VERSION, sources, systems, *filters])
    return f"{STORED_SET_PREFIX}{kernel_set.id}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
