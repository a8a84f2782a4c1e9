"""Decides when each compile starts, and keeps what it made: the launchers' one point of contact.

One thread a launcher, because each is a conversation: ask, wait, run, tell. A launcher that dies closes its connection,
which gives back what it held.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.core import memory
from wheelfactory.core.digest import sha256_of
from wheelfactory.kernels.compiler.admission import Running, expected_mib, may_start
from wheelfactory.kernels.compiler.costs import Cost, Measured
from wheelfactory.kernels.compiler.store import Finished, Store

BINDING = Cost(cpu_s=60.0, peak_mib=2867, size=0)
"""What a binding is taken to cost: the 2.8 GiB that the one factory known to build them allows for a compile
(mjun0812, build_linux_rocm.sh); its CPU time was not measured."""

TRIES = 3
"""How often a compile is tried at most that the kernel kills for want of memory. The second try waits until twice the
memory that is then expected of it is free, the third until four times; with nothing else running neither waits."""

LOOK_AGAIN_S = 0.5

LEAST_FREE = 1 << 20
"""Bytes; with less room than this a compile that failed is taken to have failed for that."""


@dataclass
class Coordinator:
    """What is known while a set is compiled."""

    store: Store
    archs: tuple[str, ...]
    predictions: Mapping[str, Cost]
    jobs: int
    deadline: float | None
    """Seconds since 1970 at which every compile should have ended."""
    highest_ratio: float | None
    """Measured over predicted memory of this compiler; None before anything was measured."""
    measured: Callable[[Measured], None]
    """Is told of each compile that the compiler did itself."""
    running: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Process id of each launcher that compiles, with its source and the memory allowed for it, in MiB."""
    waiting: dict[int, float] = field(default_factory=dict)
    """Process id of each launcher that waits, with the CPU seconds predicted for its source."""
    tries: dict[int, int] = field(default_factory=dict)
    """Process id of each launcher whose compile was killed for want of memory, and how often."""
    failed: bool = False
    """Whether a compile ended with an error of its own."""
    stopped: bool = False
    """Whether a compile was not started because the time is up."""
    trouble: str = ""
    """Why an object could not be kept, or written in the first place."""
    slowest: float = 1.0
    """The most that a compile has taken over what was predicted; at least one, as a light one says little of others."""
    peak_mib: int = 0
    turn: threading.Condition = field(default_factory=threading.Condition)

    def serve(self, listener: socket.socket) -> None:
        """Talk to launchers until the listener is closed."""
        while listener.fileno() >= 0:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed, which ends this, or short of something for a moment
                time.sleep(LOOK_AGAIN_S)
                continue
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        process: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        with ExitStack() as stack:
            stack.callback(self._leave, process)
            lines = stack.enter_context(stack.enter_context(connection).makefile("r"))
            source, kills = "", 0
            for line in lines:
                verb, *words = line.rstrip("\n").split("\t")
                if verb == "start":
                    source, kills = words[0], memory.out_of_memory_kills()
                    answer = self.admit(process, source)
                else:
                    answer = self._ended(process, source, words, memory.out_of_memory_kills() > kills)
                    self._leave(process)
                connection.sendall(f"{answer}\n".encode())

    def cost(self, source: str) -> Cost:
        """What a source is predicted to cost."""
        return self.predictions.get(source, BINDING)

    def admit(self, process: int, source: str) -> str:
        """Wait until a compile may start; ``go``, or ``later`` if it would not end in time."""
        cost = self.cost(source)
        with self.turn:
            self.waiting[process] = cost.cpu_s
            try:
                while not self._is_late(cost):
                    # what a binding is taken to cost is an allowance already
                    ratio = self.highest_ratio if source else 1.0
                    wanted = expected_mib(cost.peak_mib, ratio) * 2 ** self.tries.get(process, 0)
                    if self._is_next(process) and self._fits(wanted):
                        self.running[process] = (source, wanted)
                        return "go"
                    self.turn.wait(LOOK_AGAIN_S)
            finally:
                del self.waiting[process]
                self.turn.notify_all()
            self.stopped = True
            return "later"

    def _is_next(self, process: int) -> bool:
        """Whether one more may run, and this is the dearest that waits: light ones would pass a heavy one for ever."""
        return len(self.running) < self.jobs and process == max(self.waiting, key=self.waiting.__getitem__)

    def _is_late(self, cost: Cost) -> bool:
        return self.deadline is not None and time.time() + cost.cpu_s * self.slowest > self.deadline

    def _fits(self, wanted_mib: float) -> bool:
        free = memory.free_mib()
        if may_start(wanted_mib, free, [Running(allowed) for _, allowed in self.running.values()]):
            return True  # even if those that run had taken nothing yet, so there is no need to look at each
        resident = memory.resident_mib(self.running)
        return may_start(wanted_mib, free, [Running(a, resident[p]) for p, (_, a) in self.running.items()])

    def _leave(self, process: int) -> None:
        with self.turn:
            self.running.pop(process, None)
            self.turn.notify_all()

    def _ended(self, process: int, source: str, words: list[str], killed: bool) -> str:
        """Keep what was compiled; ``kept``, ``again``, ``failed``, or why it is not kept or not tried again."""
        code, cpu_s, peak_kib, start, cached, output = words
        if code != "0":
            self._note_full_disk(Path(output or "."))
            if killed:
                return self._try_again(process, source, int(peak_kib) / 1024)
            self.failed = True
            return "failed"
        if not source:
            return "kept"
        try:
            entry = Finished(
                source=source,
                archs=self.archs,
                sha256=sha256_of(Path(output)),
                size=Path(output).stat().st_size,
                cpu_s=float(cpu_s),
                peak_mib=int(peak_kib) // 1024,
                start=float(start),
                end=time.time(),
                cached=cached == "1",
            )
            self._keep(entry, Path(output))
        except OSError as error:
            self.trouble = f"{self.store.folder}: {error.strerror}"
            return str(error.strerror)
        return "kept"

    def _note_full_disk(self, output: Path) -> None:
        """A compiler that finds no room to write says so in words of its own."""
        if shutil.disk_usage(output.parent).free < LEAST_FREE:
            self.trouble = f"{output.parent}: {os.strerror(errno.ENOSPC)}"

    def _try_again(self, process: int, source: str, peak_mib: float) -> str:
        """``again`` while there are tries left; all learn from what it had taken when it was killed."""
        with self.turn:
            if source:
                self.highest_ratio = max(self.highest_ratio or 1.0, peak_mib / self.cost(source).peak_mib)
            self.tries[process] = self.tries.get(process, 0) + 1
            return "again" if self.tries[process] < TRIES else "killed for want of memory"

    def _keep(self, entry: Finished, output: Path) -> None:
        with self.turn:  # one line of the journal at a time
            self.store.keep(output, entry)
            if entry.cached:
                return
            cost = self.cost(entry.source)
            self.peak_mib = max(self.peak_mib, entry.peak_mib)
            self.slowest = max(self.slowest, (entry.end - entry.start) / cost.cpu_s)
            self.highest_ratio = max(self.highest_ratio or 0.0, entry.peak_mib / cost.peak_mib)
            compiler = str(self.store.key.parts["compiler"]["content"])
            self.measured(Measured(entry.source, entry.archs, compiler, entry.cpu_s, entry.peak_mib, entry.size))
