"""Compile a kernel set: reuse objects of the store, compile the rest in order of cost, save each as it ends."""

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
from wheelfactory.kernels.compiler.limits import (
    increase_stack_limit_for_link,
    require_matching_key,
    require_supported_archs,
)
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


def compile_set(request: CompileRequest, inputs: CompileInputs, environ: Mapping[str, str]) -> CompileResult:
    """Compile the requested part of a kernel set in the current folder, and return the result.

    Raises `BuildError` if the request is refused, an object cannot be saved, or memory is too small for one compile
    alone; `OSError` if the compiler cannot be started.
    """
    if request.archive_keys:
        require_matching_key(inputs.key, request.archive_keys)
    if not request.shard:
        outputs = [edge.output for edge in (*inputs.kernels.values(), *inputs.bindings)]
        increase_stack_limit_for_link(os.getppid(), outputs, environ)  # the parent is setup.py, which starts the linker
    selected = _selected(request, inputs)
    store = Store(Path(request.kernels), inputs.key)
    store.create()
    with ExitStack() as held:
        held.enter_context(_locked(store))
        missing = _take(store, inputs, selected)
        result = CompileResult(
            state=FAILED,
            key=inputs.key.digest,
            sources=tuple(selected),
            reused=len(selected) - len(missing),
            compiled=0,
            started=time.time(),
        )
        result.write(request)
        for note in _notes(request, store, inputs, missing):
            print(f"{NOTICE_PREFIX}{note}", flush=True)
        if missing:
            require_supported_archs(inputs.hipcc, inputs.archs, environ)
        else:
            held.close()  # only bindings are left, and no other build shares them
        ledger = _ledger(request, inputs, store)
        predicted_s = {
            name: predict_cost(ledger, name, inputs.archs, inputs.compiler.content).cpu_s for name in inputs.kernels
        }
        objects = ObjectCompiler(request, inputs, store, environ, predicted_s)
        kernels = [inputs.kernels[name] for name in longest_first({name: predicted_s[name] for name in missing})]
        objects.compile_edges([*kernels, *(() if request.shard else inputs.bindings)])
        compiled = len(set(missing) & set(store.read_records()))
        return replace(result, state=_state(request, objects, missing, compiled), compiled=compiled)


@contextmanager
def _locked(store: Store) -> Iterator[None]:
    """Lock a store, so that two builds do not compile one set twice."""
    # flock, because the kernel releases it however the process ends
    descriptor = os.open(store.folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{NOTICE_PREFIX}waiting for another build that compiles this kernel set", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _state(request: CompileRequest, objects: ObjectCompiler, missing: Sequence[str], compiled: int) -> str:
    """The state of the result. Raises `BuildError` if a rerun would fail in the same way."""
    if objects.error:
        hint = "free disk space, then run the same command again: compiled kernels are kept"
        raise BuildError("cannot save compiled kernels", objects.error, hint)
    if objects.failed:
        return FAILED
    if not objects.late:
        return SHARD_DONE if request.shard else READY_TO_LINK
    if missing and not compiled:
        which = f"{len(missing)} kernels are missing"
        raise BuildError("too little time to compile one kernel", which, "give more hours: --budget")
    return TIME_UP


def _selected(request: CompileRequest, inputs: CompileInputs) -> list[str]:
    """Return the source names to compile: all, or the shard's. Every machine cuts the same shards."""
    if not request.shard:
        return sorted(inputs.kernels)
    shard = Shard.parse(request.shard)
    if shard.count > len(inputs.kernels):
        hint = f"there are {len(inputs.kernels)} kernels: use --shard I/N with a smaller N"
        raise BuildError("more shards than kernels", request.shard, hint)
    ledger = Ledger.read(Path(request.shard_ledger)) if request.shard_ledger else Ledger()
    return list(cut_shards(shard_costs(ledger, inputs.kernels, inputs.archs), shard.count)[shard.index - 1])


def _take(store: Store, inputs: CompileInputs, selected: Sequence[str]) -> list[str]:
    """Copy stored objects into the build tree; return the names that are missing or damaged."""
    finished = store.read_records()
    return [
        name
        for name in selected
        if name not in finished or not store.restore_object(finished[name], Path(inputs.kernels[name].output))
    ]


def _notes(request: CompileRequest, store: Store, inputs: CompileInputs, missing: Sequence[str]) -> Iterator[str]:
    if inputs.early_inline_disabled:
        pair = f"{EARLY_INLINE}=true with {FUNCTION_CALLS}=false"
        yield f"{inputs.compiler.version} inlines without end with {pair}: compiling kernels without early inlining"
    damaged = sorted(set(missing) & set(store.read_records()))
    if damaged:
        yield f"{len(damaged)} stored objects are missing or damaged, compiling them again: {damaged[0]}"
    if request.archive_keys and len(missing) > len(damaged):
        absent = f"{len(missing) - len(damaged)} of {len(inputs.kernels)} kernels"
        yield f"compiling {absent} that no given archive contains"


def _ledger(request: CompileRequest, inputs: CompileInputs, store: Store) -> Ledger:
    """Measurements of this machine, and the costs of stored objects, which may come from other machines."""
    kept = (
        Measurement(entry.source, entry.archs, inputs.compiler.content, entry.cpu_s, entry.peak_mib, entry.size)
        for entry in store.read_records().values()
        if not entry.cached and entry.cpu_s > 0 and entry.peak_mib > 0
    )
    return Ledger((*Ledger.read(Path(request.ledger)).measurements, *kept))
