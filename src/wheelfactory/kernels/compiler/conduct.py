"""A survey -> objects: take what the store has, compile the rest in the order of its cost, keep each as it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.core.note import NOTE
from wheelfactory.kernels.compiler import launcher
from wheelfactory.kernels.compiler.coordinator import Coordinator
from wheelfactory.kernels.compiler.costs import Cost, Ledger, Measured, predict, shard_costs
from wheelfactory.kernels.compiler.edges import Edge, write_ninja
from wheelfactory.kernels.compiler.flags import rocm_of
from wheelfactory.kernels.compiler.key import key_environment
from wheelfactory.kernels.compiler.limits import allow_link, refuse_other_key, refuse_untargetable
from wheelfactory.kernels.compiler.order import FAILED, LATER, LINK, SHARD, Order, Report
from wheelfactory.kernels.compiler.shards import Shard, cut, longest_first
from wheelfactory.kernels.compiler.status import NINJA_STATUS, Pace, enriched, name_of
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.compiler.survey import Survey

CACHE_SIZE = "10G"
"""Of the compiler cache: several sets, at 355 MB of objects for one arch and 550 MB for three (facts)."""


def conduct(order: Order, found: Survey, environ: Mapping[str, str]) -> tuple[int, Report]:
    """Compile what an order wants of a kernel set, in the folder this runs in; ninja's exit status, and a report.

    Raises `BuildError` before anything is compiled, or if what was compiled cannot be kept.
    """
    _refuse(order, found, environ)
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
        coordinator = _coordinator(order, found, store)
        code = _compile(order, found, _edges(order, found, missing, coordinator), coordinator, environ)
        compiled = len(set(missing) & set(store.finished()))
        return code, replace(report, state=_state(order, coordinator, code, missing, compiled), compiled=compiled)


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


def _edges(order: Order, found: Survey, missing: Sequence[str], coordinator: Coordinator) -> list[Edge]:
    """What is left to compile: kernels, the dearest first, and the bindings if they are to be linked."""
    dearest_first = longest_first({name: coordinator.cost(name).cpu_s for name in missing})
    return [*(found.kernels[name] for name in dearest_first), *(() if order.shard else found.bindings)]


def _state(order: Order, coordinator: Coordinator, code: int, missing: Sequence[str], compiled: int) -> str:
    """How it ended. Raises `BuildError` if the same command would end the same way."""
    if coordinator.trouble:
        hint = "make room, and run the same command again: it goes on from here"
        raise BuildError("cannot keep compiled kernels", coordinator.trouble, hint)
    if code == 0:
        return SHARD if order.shard else LINK
    if coordinator.failed or not coordinator.stopped:
        return FAILED
    if missing and not compiled:
        raise BuildError("the time is too short", f"for one more of {len(missing)} kernels", "give --budget more hours")
    return LATER


def _refuse(order: Order, found: Survey, environ: Mapping[str, str]) -> None:
    if order.given:
        refuse_other_key(found.key, order.given)
    if not order.shard:
        objects = [edge.output for edge in (*found.kernels.values(), *found.bindings)]
        allow_link(os.getppid(), objects, environ)  # of setup.py, which starts the linker


def _selected(order: Order, found: Survey) -> list[str]:
    """The names to have: all, or those of the shard, cut by what is the same on every machine."""
    if not order.shard:
        return sorted(found.kernels)
    shard = Shard.parse(order.shard)
    if shard.count > len(found.kernels):
        raise BuildError("more shards than kernels", order.shard, f"cut into {len(found.kernels)} or fewer")
    ledger = Ledger.read(Path(order.cut_by)) if order.cut_by else Ledger()
    return list(cut(shard_costs(ledger, found.kernels, found.archs), shard.count)[shard.index - 1])


def _costs(ledger: Ledger, found: Survey) -> dict[str, Cost]:
    return {name: predict(ledger, name, found.archs, found.compiler.content) for name in found.kernels}


def _take(store: Store, found: Survey, selected: Sequence[str]) -> list[str]:
    """Put in place what the store has; the names of what it has not, or not as its journal says."""
    finished = store.finished()
    return [
        name
        for name in selected
        if name not in finished or not store.take(finished[name], Path(found.kernels[name].output))
    ]


def _notes(order: Order, store: Store, found: Survey, missing: Sequence[str]) -> Iterator[str]:
    yield from found.notes
    damaged = sorted(set(missing) & set(store.finished()))
    if damaged:
        yield f"{len(damaged)} kept objects are missing or damaged and are compiled again: {damaged[0]}"
    if order.given and len(missing) > len(damaged):
        absent = f"{len(missing) - len(damaged)} of {len(found.kernels)} kernels"
        yield f"{absent} are in no archive that was given, and are compiled here"


def _coordinator(order: Order, found: Survey, store: Store) -> Coordinator:
    ledger = _ledger(order, found, store)

    def record(entry: Measured) -> None:
        with Path(order.ledger).open("a", encoding="utf-8") as file:
            file.write(entry.to_line())

    return Coordinator(
        store=store,
        archs=found.archs,
        predictions=_costs(ledger, found),
        jobs=order.jobs,
        deadline=order.deadline,
        highest_ratio=1.0 if found.compiler.content in ledger.ratios else None,
        measured=record,
    )


def _ledger(order: Order, found: Survey, store: Store) -> Ledger:
    """What was measured on this machine, and what the objects of the store have cost wherever they were compiled."""
    kept = (
        Measured(entry.source, entry.archs, found.compiler.content, entry.cpu_s, entry.peak_mib, entry.size)
        for entry in store.finished().values()
        if not entry.cached and entry.cpu_s > 0 and entry.peak_mib > 0
    )
    return Ledger((*Ledger.read(Path(order.ledger)).measured, *kept))


def _compile(
    order: Order, found: Survey, edges: Sequence[Edge], coordinator: Coordinator, environ: Mapping[str, str]
) -> int:
    """Run the real ninja on these compiles; its exit status."""
    written = Path.cwd() / "wheelfactory.ninja"
    write_ninja(edges, written)
    for edge in edges:  # ninja would keep an object of an earlier run, which may be of another key
        Path(edge.output).unlink(missing_ok=True)
    with _serving(coordinator) as address, tempfile.TemporaryDirectory() as stats:
        told = {**environ, **_cache_settings(order, found, environ, stats), **_launcher_settings(found, address)}
        # all that ninja is told of parallelism: admission decides which of these start
        command = [order.ninja, "-f", written.name, "-j", str(order.jobs)]
        process = subprocess.Popen(
            command,
            env={**told, "NINJA_STATUS": NINJA_STATUS},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        with process:
            _follow(process, coordinator, {edge.name for edge in edges})
        return process.returncode


def _follow(process: subprocess.Popen[str], coordinator: Coordinator, left: set[str]) -> None:
    """Pass on what ninja says, its status lines enriched."""
    start, total, done = time.monotonic(), len(left), 0.0
    assert process.stdout
    for line in process.stdout:
        name = name_of(line.rstrip())
        if name in left:
            left.discard(name)
            done += coordinator.cost(name).cpu_s
            pace = Pace(
                elapsed_s=time.monotonic() - start,
                done=total - len(left),
                predicted_done_s=done,
                predicted_left_s=sum(coordinator.cost(other).cpu_s for other in left),
                jobs=coordinator.jobs,
                peak_mib=coordinator.peak_mib,
            )
            line = enriched(line.rstrip(), pace) + "\n"
        sys.stdout.write(line)
        sys.stdout.flush()


@contextmanager
def _serving(coordinator: Coordinator) -> Iterator[str]:
    """The address at which launchers find the coordinator; short, as Linux takes 107 characters."""
    with tempfile.TemporaryDirectory(prefix="wf-", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = f"{folder}/socket"
        listener.bind(address)
        listener.listen(128)
        threading.Thread(target=coordinator.serve, args=(listener,), daemon=True).start()
        yield address


def _launcher_settings(found: Survey, address: str) -> dict[str, str]:
    return {launcher.SOCKET: address, launcher.TAME: "1" if found.tamed else "0"}


def _cache_settings(order: Order, found: Survey, environ: Mapping[str, str], stats: str) -> dict[str, str]:
    """ccache's own variables. It is told who the compiler is, because it could only look at the first file of it."""
    if not order.ccache:
        return {}
    identity = [
        found.compiler.content,
        *(f"{k}={v}" for k, v in sorted(key_environment(environ, rocm_of(found.hipcc)).items())),
    ]
    return {
        launcher.CCACHE: order.ccache,
        launcher.STATS: stats,
        "CCACHE_DIR": order.ccache_dir,
        "CCACHE_CONFIGPATH": os.devnull,
        "CCACHE_COMPILERCHECK": f"string:{' '.join(identity)}",
        "CCACHE_MAXSIZE": CACHE_SIZE,
    }
