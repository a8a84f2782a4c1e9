"""The proof of a kernel set: which kernels were executed on an emulator, in which calls, and what was wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.strict import parse_record
from wheelfactory.emulator.ck_calls import CallReport
from wheelfactory.emulator.ck_names import suggest_calls
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.compiler.targets import HOST, parse_kernel_name

_MAX_BYTES = 1 << 23
"""A report of a call has 1 to 2 kB, and the proof has to fit into a manifest."""
CALL_CPU_S = 3.4
"""CPU seconds to execute a call in two orders: 279 for 83 calls of 105 kernels (2.8.3, gfx942; measured)."""
_HINT = "run `wheelfactory kernels SET --prove`, then `--merge`, with the same --dest"


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
        return parse_record(Proof, read_file(path, InputError("cannot read the proof", str(path), _HINT), _MAX_BYTES))
    except ValueError as error:
        raise InputError("damaged proof of kernels", f"{path}: {error}", _HINT) from None


def require_proof(set_id: str, key: SetKey, proof: Proof | None) -> None:
    """Raise `InputError` unless kernels of this set were executed without faults.

    A set of host code has no kernels, and needs no proof.
    """
    targets, digest = tuple(key.parts["targets"]), key.digest
    if targets == (HOST,):
        return
    if proof is None:
        raise InputError("no kernel of the set was executed", set_id, _HINT)
    foreign = {*proof.executed.values()} - {*key.sources}
    if (proof.set, proof.key, proof.archs) != (set_id, digest, targets) or foreign:
        of = f"{proof.set}, key {proof.key[:16]}, for {', '.join(proof.archs)}"
        raise InputError("a proof of other kernels", f"{set_id}, key {digest[:16]}, has the proof of {of}", _HINT)
    if proof.kernels and not proof.executed:
        raise InputError("no kernel of the set was executed", set_id, _HINT)
    if proof.faults:
        hint = (
            "compile the set with another compiler, or leave it out; docs/explanation/emulation.md has what is checked"
        )
        raise InputError("kernels compute something wrong", f"{set_id}: {proof.faults[0]}", hint)
