"""Run compiles of one build: save each object as it ends, record its cost, print a status line."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wheelfactory.core.files import file_sha256
from wheelfactory.kernels.compiler.costs import Measurement
from wheelfactory.kernels.compiler.request import CompileRequest
from wheelfactory.kernels.compiler.schedule import (
    Compile,
    EndedCompile,
    estimate_time_left,
    render_status_line,
    run_compiles,
)
from wheelfactory.kernels.compiler.store import ObjectRecord, Store

MIN_FREE_BYTES = 1 << 20
"""With less free disk than this, a failed compile is attributed to a full disk."""


@dataclass
class CompileRun:
    """Compiles what it is given, and keeps track of the results."""

    request: CompileRequest
    stores: Mapping[tuple[str, ...], Store]
    """By targets."""
    compiler: str
    """`Compiler.content`, for the ledger."""
    needed: Mapping[tuple[str, tuple[str, ...]], float]
    """Predicted seconds of each compile whose object is needed, by source and targets. A status line counts these; the
    others are headers, and ordinary compiles to compare with."""
    failed: bool = False
    """Whether a compile failed."""
    late: bool = False
    """Whether a compile was skipped because it would end after the deadline."""
    error: str = ""
    """Why an object could not be written or saved; empty if none failed."""
    saved: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    """Source and targets of each object saved."""
    slowest_ratio: float = 1.0
    """Largest ratio of wall time to prediction so far. At least 1: a light compile says little about heavy ones."""
    peak_mib: int = 0
    _done: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    """Those of `needed` that ended."""
    _done_s: float = 0.0
    _begin: float = field(default_factory=time.monotonic)
    # seconds since 1970 when the monotonic clock was 0. Only the start of a run asks the wall clock, which can be set
    _epoch: float = field(default_factory=lambda: time.time() - time.monotonic())

    @property
    def can_go_on(self) -> bool:
        """Whether further compiles make sense."""
        return not (self.failed or self.late or self.error)

    def run(
        self, compiles: Sequence[Compile], finish: Callable[[EndedCompile], None], *, keep_going: bool = False
    ) -> None:
        """Run these compiles, and call `finish` with each that succeeds. Raises the errors of `run_compiles`.

        With `keep_going`, a failure is printed and stops nothing.
        """
        for item in compiles:  # objects of an earlier run may have another key
            item.output.unlink(missing_ok=True)
            item.output.parent.mkdir(parents=True, exist_ok=True)
        with closing(run_compiles(compiles, self.request.jobs, self._may_start, keep_going=keep_going)) as endings:
            for ended in endings:
                if ended.code == 0:
                    finish(ended)
                self.peak_mib = max(self.peak_mib, ended.peak_mib)
                print(self._status_line(ended.compile))
                if ended.code:
                    self._print_failure(ended)
                    self.failed = self.failed or not keep_going
                sys.stdout.write(ended.output)
                sys.stdout.flush()

    def save(self, ended: EndedCompile) -> None:
        """Move an object into the store of its targets, and record its cost; set `error` if that fails."""
        item, store = ended.compile, self.stores[ended.compile.targets]
        try:
            entry = ObjectRecord(
                source=item.source,
                targets=item.targets,
                sha256=file_sha256(item.output),
                size=item.output.stat().st_size,
                cpu_s=0 if item.is_empty else ended.cpu_s,
                peak_mib=ended.peak_mib,
                start=self._epoch + ended.start,
                end=self._epoch + ended.end,
            )
            store.save_object(item.output, entry)
            if not item.is_empty:
                cost = Measurement(item.source, item.targets, self.compiler, ended.cpu_s, ended.peak_mib, entry.size)
                with Path(self.request.ledger).open("a", encoding="utf-8") as file:
                    file.write(cost.to_line())
        except OSError as error:
            self.error = f"{store.folder}: {error.strerror}"
            print(f"error: cannot save object: {item.name}: {error.strerror}", file=sys.stderr)
            return
        self.saved.add((item.source, item.targets))
        if not item.is_empty:
            self.slowest_ratio = max(self.slowest_ratio, (ended.end - ended.start) / item.predicted_s)

    def _status_line(self, ended: Compile) -> str:
        item = (ended.source, ended.targets)
        if item in self.needed and item not in self._done:
            self._done.add(item)
            self._done_s += self.needed[item]
        elapsed_s = time.monotonic() - self._begin
        left_s = estimate_time_left(self._needed_s - self._done_s, self._done_s, elapsed_s, self.request.jobs)
        done, total = len(self._done), len(self.needed)
        return render_status_line(ended.name, done, total, elapsed_s=elapsed_s, left_s=left_s, peak_mib=self.peak_mib)

    @cached_property
    def _needed_s(self) -> float:
        return sum(self.needed.values())

    def _may_start(self, item: Compile) -> bool:
        """Whether it would end in time, and its object could be saved or linked."""
        deadline = self.request.deadline
        end = self._epoch + time.monotonic() + item.predicted_s * self.slowest_ratio
        late = deadline is not None and end > deadline
        is_pointless = self.error or (self.late and not item.targets)
        self.late = self.late or late
        return not late and not is_pointless

    def _print_failure(self, ended: EndedCompile) -> None:
        """Print the failure as ninja does."""
        folder = ended.compile.output.parent
        # a compiler reports a full disk in many ways, so ask the file system instead of parsing its output
        if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
            self.error = f"{folder}: {os.strerror(errno.ENOSPC)}"
        print(f"FAILED: [code={ended.code}] {shlex.quote(str(ended.compile.output))} ")
        print(shlex.join(ended.compile.argv))
