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

    The generated sources include neither torch nor Python. Their objects depend on the sources, on ROCm's compiler and
    flags, on the archs, and on the C++ ABI, which changes the names of symbols that pass a `std::string`.
    """

    sources: str
    """What is compiled (`sources_name`), which several releases can share."""
    rocm: str
    archs: tuple[str, ...]
    cxx11_abi: bool
    cells: tuple[Cell, ...]
    """In matrix order. Running setup.py for any one of them compiles the set."""

    @property
    def id(self) -> str:
        """Such as ``ck-8e52d489-rocm6.4-gfx90a_gfx942-cxx11``."""
        return self._id_of(self.sources)

    @property
    def releases(self) -> tuple[str, ...]:
        """The flash-attn versions of the cells, in matrix order. The kernels of each are the same."""
        return tuple(dict.fromkeys(cell.flash_attn for cell in self.cells))

    @property
    def older_ids(self) -> tuple[str, ...]:
        """The ids that earlier versions of the factory gave to these kernels: one for each release."""
        return tuple(name for name in map(self._id_of, map(_version_name, self.releases)) if name != self.id)

    def _id_of(self, sources: str) -> str:
        abi = "cxx11" if self.cxx11_abi else "precxx11"
        return f"{sources}-rocm{self.rocm}-{'_'.join(self.archs)}-{abi}"


def sources_name(matrix: Matrix, flash_attn: str) -> str:
    """Name what the kernels of a release are compiled from: ``ck-8e52d489`` by digest, or ``fa2.6.3`` without one."""
    digest = matrix.flash_attn[flash_attn].kernel_sources
    return f"ck-{digest[:8]}" if digest else _version_name(flash_attn)


def _version_name(flash_attn: str) -> str:
    return f"fa{flash_attn}"


def group_kernel_sets(matrix: Matrix, cells: Iterable[Cell]) -> tuple[KernelSet, ...]:
    """Group the CK cells into kernel sets, in the order of each set's first cell."""
    shared: dict[tuple[str, str, tuple[str, ...], bool], list[Cell]] = {}
    for cell in cells:
        if cell.backend is Backend.CK:
            sources, abi = sources_name(matrix, cell.flash_attn), matrix.torch[cell.torch].cxx11_abi
            key = (sources, cell.rocm, matrix.archs(cell), abi)
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
        renamed = next((kernel_set.id for kernel_set in sets if text in kernel_set.older_ids), None)
        raise InputError("unknown kernel set", text, f"it is {renamed} now" if renamed else hint)
    return by_id[text]


# prefix of the names of stored sets. On GitHub these names are tags; tags of wheel releases must not start with it
STORED_SET_PREFIX = "kernels-"


def stored_set_name(matrix: Matrix, kernel_set: KernelSet, *, slim: bool = False) -> str:
    """The name under which archive hosts store a set: ``kernels-<set id>-<12 hex digits>``.

    The digits are a hash over everything that affects the objects and is known without a compiler: the digest of the
    kernel sources (else the pin of all sources), the filters that leave some out, and the ROCm release and distribution
    of the images, or of the `slim`
    image.
    """
    # the hash can be incomplete: an archive whose key does not match the compiler is rejected, never linked
    rocm = matrix.rocm[kernel_set.rocm]
    images = (rocm.slim,) if slim and rocm.slim else same_compiler_images(rocm.images)
    systems = sorted({(".".join(map(str, rocm_release(image))) or image.tag, image.distribution) for image in images})
    release = matrix.flash_attn[kernel_set.releases[0]]
    filters = [item.model_dump() for item in release.trim]
    facts = json.dumps([CACHE_VERSION, release.kernel_sources or release.source_pin, systems, *filters])
    return f"{STORED_SET_PREFIX}{kernel_set.id}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def describe_older_sets(sets: Iterable[KernelSet], names: Iterable[str]) -> list[str]:
    """Describe in one line the archives and stored sets among `names` that have an older id of `sets`; else no line."""
    older = tuple(f"{prefix}{name}-" for item in sets for name in item.older_ids for prefix in ("", STORED_SET_PREFIX))
    found = sorted(name for name in names if name.startswith(older))
    if not found:
        return []
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"ignored {found[0]}{more}: a kernel set is now named by its sources, not by the flash-attn version"]
