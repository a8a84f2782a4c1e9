"""A survey -> objects: take what the store has, compile the rest in the order of its cost, keep each as it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from wheelfactory.core.ask import NOTE
from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.costs import Ledger, Measured, predict, shard_costs
from wheelfactory.kernels.compiler.edges import Survey
from wheelfactory.kernels.compiler.flags import EARLY_INLINE, FUNCTION_CALLS
from wheelfactory.kernels.compiler.limits import allow_link, refuse_other_key, refuse_untargetable
from wheelfactory.kernels.compiler.objects import Objects
from wheelfactory.kernels.compiler.order import FAILED, LATER, LINK, SHARD, Order, Report
from wheelfactory.kernels.compiler.shards import Shard, cut, longest_first
from wheelfactory.kernels.compiler.store import Store


def conduct(order: Order, found: Survey, environ: Mapping[str, str]) -> Report:
    """Compile what an order wants of a kernel set, in the folder this runs in; how it ended.

    Raises `BuildError` before anything is compiled, if what was compiled cannot be kept, or if memory is too short
    for one compile alone; `OSError` if there is no compiler.
    """
    if order.given:
        refuse_other_key(found.key, order.given)
    if not order.shard:
        outputs = [edge.output for edge in (*found.kernels.values(), *found.bindings)]
        allow_link(os.getppid(), outputs, environ)  # of setup.py, which starts the linker
    selected = _selected(order, found)
    store = Store(Path(order.kernels), found.key)
    store.make()
    with ExitStack() as held:
        held.enter_context(_alone(store))
        missing = _take(store, found, selected)
        report = Report(
            state=FAILED,
            key=found.key.digest,
            names=tuple(selected),
            taken=len(selected) - len(missing),
            compiled=0,
            started=time.time(),
        )
        report.write(order)
        for note in _notes(order, store, found, missing):
            print(f"{NOTE}{note}", flush=True)
        if missing:
            refuse_untargetable(found.hipcc, found.archs, environ)
        else:
            held.close()  # what is left is bindings, which no other build shares
        ledger = _ledger(order, found, store)
        predicted_s = {name: predict(ledger, name, found.archs, found.compiler.content).cpu_s for name in found.kernels}
        objects = Objects(order, found, store, environ, predicted_s)
        kernels = [found.kernels[name] for name in longest_first({name: predicted_s[name] for name in missing})]
        objects.compile([*kernels, *(() if order.shard else found.bindings)])
        compiled = len(set(missing) & set(store.finished()))
        return replace(report, state=_state(order, objects, missing, compiled), compiled=compiled)


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Hold a store, so that two builds do not compile one set twice; the kernel lets go when the process ends."""
    descriptor = os.open(store.folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{NOTE}another build compiles this kernel set: waiting for it", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _state(order: Order, objects: Objects, missing: Sequence[str], compiled: int) -> str:
    """How it ended. Raises `BuildError` if the same command would end the same way."""
    if objects.trouble:
        hint = "make room, and run the same command again: it goes on from here"
        raise BuildError("cannot keep compiled kernels", objects.trouble, hint)
    if objects.failed:
        return FAILED
    if not objects.late:
        return SHARD if order.shard else LINK
    if missing and not compiled:
        raise BuildError("the time is too short", f"for one more of {len(missing)} kernels", "give --budget more hours")
    return LATER


def _selected(order: Order, found: Survey) -> list[str]:
    """The names to have: all, or those of the shard, cut by what is the same on every machine."""
    if not order.shard:
        return sorted(found.kernels)
    shard = Shard.parse(order.shard)
    if shard.count > len(found.kernels):
        raise BuildError("more shards than kernels", order.shard, f"cut into {len(found.kernels)} or fewer")
    ledger = Ledger.read(Path(order.cut_by)) if order.cut_by else Ledger()
    return list(cut(shard_costs(ledger, found.kernels, found.archs), shard.count)[shard.index - 1])


def _take(store: Store, found: Survey, selected: Sequence[str]) -> list[str]:
    """Put in place what the store has; the names of what it has not, or not as its journal says."""
    finished = store.finished()
    return [
        name
        for name in selected
        if name not in finished or not store.take(finished[name], Path(found.kernels[name].output))
    ]


def _notes(order: Order, store: Store, found: Survey, missing: Sequence[str]) -> Iterator[str]:
    if found.tamed:
        pair = f"{EARLY_INLINE}=true with {FUNCTION_CALLS}=false"
        yield f"{found.compiler.version} runs away on {pair}: kernels are compiled without early inlining"
    damaged = sorted(set(missing) & set(store.finished()))
    if damaged:
        yield f"{len(damaged)} kept objects are missing or damaged and are compiled again: {damaged[0]}"
    if order.given and len(missing) > len(damaged):
        absent = f"{len(missing) - len(damaged)} of {len(found.kernels)} kernels"
        yield f"{absent} are in no archive that was given, and are compiled here"


def _ledger(order: Order, found: Survey, store: Store) -> Ledger:
    """What was measured on this machine, and what the objects of the store have cost wherever they were compiled."""
    kept = (
        Measured(entry.source, entry.archs, found.compiler.content, entry.cpu_s, entry.peak_mib, entry.size)
        for entry in store.finished().values()
        if not entry.cached and entry.cpu_s > 0 and entry.peak_mib > 0
    )
    return Ledger((*Ledger.read(Path(order.ledger)).measured, *kept))
