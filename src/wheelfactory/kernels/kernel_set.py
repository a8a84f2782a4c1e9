"""Kernel sets: cells that share compiled CK kernels, the names of these sets, and the proof that kernels of one ran.

The proof says which kernels were executed on an emulator, in which calls, and what was wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.strict import parse_record
from wheelfactory.emulator.ck_calls import CallReport
from wheelfactory.emulator.ck_names import suggest_calls
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.compiler.targets import HOST, parse_kernel_name
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


_MAX_PROOF_BYTES = 1 << 23
"""A report of a call has 1 to 2 kB, and the proof has to fit into a manifest."""
CALL_CPU_S = 3.4
"""CPU seconds to execute a call in two orders: 279 for 83 calls of 105 kernels (2.8.3, gfx942; measured)."""
_PROOF_HINT = "run `wheelfactory kernels SET --prove`, then `--merge`, with the same --dest"


@dataclass(frozen=True)
class Proof:
    """What ``SET-KEY.proof.json`` has, and the manifest of a proved archive."""

    set: str
    key: str
    """Of the set, with the digests of its compiler, flags and sources: 64 hex digits."""
    host_key: str
    executed_by: str
    """The emulator (`emulator_id`)."""
    archs: tuple[str, ...]
    kernels: int
    """All kernels of the set."""
    executed: Mapping[str, str]
    """The source of each kernel that ran."""
    calls: tuple[CallReport, ...]
    faults: tuple[str, ...]

    def __str__(self) -> str:
        kernels = f"{len(self.executed)} of {self.kernels} kernels"
        archs, faults = ", ".join(self.archs), len(self.faults)
        not_run = sum(bool(call.not_run) for call in self.calls)
        calls = f"{len(self.calls)} calls{f', {not_run} of them not run' if not_run else ''}"
        return f"{kernels} executed by an emulator, for {archs}; {calls}; {faults} faults"


def sample_sources(sources: Iterable[str]) -> list[str]:
    """Choose sources until each word of the names is there for each operation: dtypes, head dims, masks, options."""
    chosen, seen = [], set[tuple[str, str]]()
    for source in sources:
        name = parse_kernel_name(source)
        if name is None or name.is_api:
            continue
        features = {(name.operation, word) for word in (name.head_dim, *name.rest.split("_")) if "x" not in word}
        if features - seen:
            chosen.append(source)
            seen |= features
    return chosen


def predict_cpu_s(sources: Iterable[str], targets: Sequence[str]) -> float:
    """Predict the CPU seconds in which a sample of a set's kernels is executed; 0 for host code."""
    if HOST in targets:
        return 0
    return CALL_CPU_S * sum(1 for source in sample_sources(sources) for _ in suggest_calls(source))


def proof_path(folder: Path, set_id: str, key: str) -> Path:
    """Return where the proof of a set is, beside its archive."""
    return folder / f"{set_id}-{key[:16]}.proof.json"


def read_proof(path: Path) -> Proof:
    """Read a proof. Raises `InputError`."""
    try:
        return parse_record(
            Proof, read_file(path, InputError("cannot read the proof", str(path), _PROOF_HINT), _MAX_PROOF_BYTES)
        )
    except ValueError as error:
        raise InputError("damaged proof of kernels", f"{path}: {error}", _PROOF_HINT) from None


def require_proof(set_id: str, key: SetKey, proof: Proof | None) -> None:
    """Raise `InputError` unless kernels of this set were executed without faults.

    A set of host code has no kernels, and needs no proof.
    """
    targets, digest = tuple(key.parts["targets"]), key.digest
    if targets == (HOST,):
        return
    if proof is None:
        raise InputError("no kernel of the set was executed", set_id, _PROOF_HINT)
    foreign = {*proof.executed.values()} - {*key.sources}
    if (proof.set, proof.key, proof.archs) != (set_id, digest, targets) or foreign:
        of = f"{proof.set}, key {proof.key[:16]}, for {', '.join(proof.archs)}"
        raise InputError("a proof of other kernels", f"{set_id}, key {digest[:16]}, has the proof of {of}", _PROOF_HINT)
    if proof.kernels and not proof.executed:
        raise InputError("no kernel of the set was executed", set_id, _PROOF_HINT)
    if proof.faults:
        hint = "compile the set with another compiler, or leave it out; "
        hint += "docs/explanation/emulation.md has what is checked"
        raise InputError("kernels compute something wrong", f"{set_id}: {proof.faults[0]}", hint)
