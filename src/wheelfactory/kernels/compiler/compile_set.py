"""A survey -> objects: take what the store has, compile the rest in the order of its cost, keep each as it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.core.query import NOTICE_PREFIX
from wheelfactory.kernels.compiler.costs import Ledger, Measurement, predict_cost, shard_costs
from wheelfactory.kernels.compiler.edges import CompileInputs
from wheelfactory.kernels.compiler.flags import EARLY_INLINE, FUNCTION_CALLS
from wheelfactory.kernels.compiler.limits import raise_link_limit, require_matching_key, require_supported_archs
from wheelfactory.kernels.compiler.objects import ObjectCompiler
from wheelfactory.kernels.compiler.request import (
    FAILED,
    READY_TO_LINK,
    SHARD_DONE,
    TIME_UP,
    CompileRequest,
    CompileResult,
)
from wheelfactory.kernels.compiler.shards import Shard, cut_shards, longest_first
from wheelfactory.kernels.compiler.store import Store


def compile_set(order: CompileRequest, found: CompileInputs, environ: Mapping[str, str]) -> CompileResult:
    """Compile what an order wants of a kernel set, in the folder this runs in; how it ended.

    Raises `BuildError` before anything is compiled, if what was compiled cannot be kept, or if memory is too short
    for one compile alone; `OSError` if there is no compiler.
    """
    if order.archive_keys:
        require_matching_key(found.key, order.archive_keys)
    if not order.shard:
        outputs = [edge.output for edge in (*found.kernels.values(), *found.bindings)]
        raise_link_limit(os.getppid(), outputs, environ)  # of setup.py, which starts the linker
    selected = _selected(order, found)
    store = Store(Path(order.kernels), found.key)
    store.create()
    with ExitStack() as held:
        held.enter_context(_alone(store))
        missing = _take(store, found, selected)
        report = CompileResult(
            state=FAILED,
            key=found.key.digest,
            sources=tuple(selected),
            reused=len(selected) - len(missing),
            compiled=0,
            started=time.time(),
        )
        report.write(order)
        for note in _notes(order, store, found, missing):
            print(f"{NOTICE_PREFIX}{note}", flush=True)
        if missing:
            require_supported_archs(found.hipcc, found.archs, environ)
        else:
            held.close()  # what is left is bindings, which no other build shares
        ledger = _ledger(order, found, store)
        predicted_s = {
            name: predict_cost(ledger, name, found.archs, found.compiler.content).cpu_s for name in found.kernels
        }
        objects = ObjectCompiler(order, found, store, environ, predicted_s)
        kernels = [found.kernels[name] for name in longest_first({name: predicted_s[name] for name in missing})]
        objects.compile_edges([*kernels, *(() if order.shard else found.bindings)])
        compiled = len(set(missing) & set(store.read_records()))
        return replace(report, state=_state(order, objects, missing, compiled), compiled=compiled)


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Hold a store, so that two builds do not compile one set twice; the kernel lets go when the process ends."""
    descriptor = os.open(store.folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{NOTICE_PREFIX}another build compiles this kernel set: waiting for it", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _state(order: CompileRequest, objects: ObjectCompiler, missing: Sequence[str], compiled: int) -> str:
    """How it ended. Raises `BuildError` if the same command would end the same way."""
    if objects.error:
        hint = "make room, and run the same command again: it goes on from here"
        raise BuildError("cannot keep compiled kernels", objects.error, hint)
    if objects.failed:
        return FAILED
    if not objects.late:
        return SHARD_DONE if order.shard else READY_TO_LINK
    if missing and not compiled:
        raise BuildError("the time is too short", f"for one more of {len(missing)} kernels", "give --budget more hours")
    return TIME_UP


def _selected(order: CompileRequest, found: CompileInputs) -> list[str]:
    """The names to have: all, or those of the shard, cut by what is the same on every machine."""
    if not order.shard:
        return sorted(found.kernels)
    shard = Shard.parse(order.shard)
    if shard.count > len(found.kernels):
        raise BuildError("more shards than kernels", order.shard, f"cut into {len(found.kernels)} or fewer")
    ledger = Ledger.read(Path(order.shard_ledger)) if order.shard_ledger else Ledger()
    return list(cut_shards(shard_costs(ledger, found.kernels, found.archs), shard.count)[shard.index - 1])


def _take(store: Store, found: CompileInputs, selected: Sequence[str]) -> list[str]:
    """Put in place what the store has; the names of what it has not, or not as its journal says."""
    finished = store.read_records()
    return [
        name
        for name in selected
        if name not in finished or not store.restore_object(finished[name], Path(found.kernels[name].output))
    ]


def _notes(order: CompileRequest, store: Store, found: CompileInputs, missing: Sequence[str]) -> Iterator[str]:
    if found.early_inline_disabled:
        pair = f"{EARLY_INLINE}=true with {FUNCTION_CALLS}=false"
        yield f"{found.compiler.version} runs away on {pair}: kernels are compiled without early inlining"
    damaged = sorted(set(missing) & set(store.read_records()))
    if damaged:
        yield f"{len(damaged)} kept objects are missing or damaged and are compiled again: {damaged[0]}"
    if order.archive_keys and len(missing) > len(damaged):
        absent = f"{len(missing) - len(damaged)} of {len(found.kernels)} kernels"
        yield f"{absent} are in no archive that was given, and are compiled here"


def _ledger(order: CompileRequest, found: CompileInputs, store: Store) -> Ledger:
    """What was measured on this machine, and what the objects of the store have cost wherever they were compiled."""
    kept = (
        Measurement(entry.source, entry.archs, found.compiler.content, entry.cpu_s, entry.peak_mib, entry.size)
        for entry in store.read_records().values()
        if not entry.cached and entry.cpu_s > 0 and entry.peak_mib > 0
    )
    return Ledger((*Ledger.read(Path(order.ledger)).measurements, *kept))
