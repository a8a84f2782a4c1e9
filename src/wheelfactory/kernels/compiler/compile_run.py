"""Run the compiles of a build: samples first, to compare with ordinary compiles; save each object as it ends.

Parts put together must be the same bytes as an ordinary object. One source of each kind and guard is compiled in both
ways. If one differs, or the compiler refuses, precompiled headers are not used, then no empty sources; if it still
differs, objects cannot be composed at all. Each object's cost is recorded, and a status line printed.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wheelfactory.core.files import file_sha256
from wheelfactory.core.query import NOTICE_PREFIX
from wheelfactory.kernels.compiler.commands import ORDINARY, CompileCommands, Shortcuts
from wheelfactory.kernels.compiler.costs import Measurement, parse_kernel_kind, seed_cost
from wheelfactory.kernels.compiler.objects import Bundler, CannotComposeError, embed, find_fat_binary
from wheelfactory.kernels.compiler.request import CompileRequest
from wheelfactory.kernels.compiler.schedule import (
    Compile,
    EndedCompile,
    estimate_time_left,
    render_status_line,
    run_compiles,
)
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.compiler.targets import HOST, Guards, compiled_sources, whole_targets

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


MIN_COMPILES = 3
"""A header is precompiled for at least this many compiles: it costs what one or two of them save."""

Targets = tuple[str, ...]

Part = tuple[str, Targets]
"""A source, and the targets that it is compiled for."""


@dataclass
class Samples:
    """Chooses how to compile the missing parts."""

    run: CompileRun
    commands: CompileCommands
    bundler: Bundler
    missing: Sequence[Part]
    _ended: dict[Part, EndedCompile] = field(default_factory=dict)
    """The compiles of the parts to compare."""

    @cached_property
    def _targets(self) -> list[Targets]:
        """The targets of the missing parts."""
        return list(dict.fromkeys(targets for _, targets in self.missing))

    def prove(self) -> Shortcuts:
        """Compile samples, save their parts, and return the shortcuts that the rest is to take.

        Stops early if an ordinary compile fails, or does not end in time (see `CompileRun.can_go_on`). Raises
        `CannotComposeError` if a sample differs from its ordinary compile even without shortcuts.
        """
        samples = choose_samples(self.missing, self.commands.inputs.guards)
        self.run.run([self._ordinary(name) for name in samples], lambda _: None)
        fewer, shortcuts = self._ladder()
        while self.run.can_go_on:
            reason = self._compare(samples, shortcuts)
            if not reason or not self.run.can_go_on:
                break
            if not fewer:
                raise CannotComposeError(reason)
            without, shortcuts = fewer.pop(0)
            print(f"{NOTICE_PREFIX}{reason}: compiling without {without}", flush=True)
        missing = {*self.missing}
        for part, ended in self._ended.items():
            if part in missing:
                self.run.save(ended)
        return shortcuts

    def _ladder(self) -> tuple[list[tuple[str, Shortcuts]], Shortcuts]:
        """All shortcuts, and what to leave out of them, one after the other, if a sample differs."""
        headers = choose_headers(self.missing, self.commands)
        empty = any(self.commands.is_empty(*part) for part in self.missing)
        fewer = []
        if headers:
            fewer.append(("precompiled headers", Shortcuts({}, empty)))
        if empty:
            fewer.append(("empty sources", ORDINARY))
        return fewer, Shortcuts(headers, empty)

    def _compare(self, samples: Sequence[str], shortcuts: Shortcuts) -> str:
        """Compile the parts of the samples, and say why they are not the ordinary objects; empty if they are."""
        self._ended.clear()
        compiles = [self.commands.header(*item) for item in shortcuts.headers]
        self.run.run(compiles, lambda _: None, keep_going=True)
        refused = [item.name for item in compiles if not item.output.exists()]
        if refused:
            return f"the compiler does not precompile {refused[0]}"
        # also those that are kept: they may come from another machine
        parts = [
            self.commands.kernel(name, targets, self._path(name, targets), shortcuts)
            for targets in self._targets
            for name in compiled_sources(samples, targets)
        ]
        self.run.run(parts, self._keep, keep_going=True)
        return next((reason for reason in map(self._difference, samples) if reason), "")

    def _keep(self, ended: EndedCompile) -> None:
        self._ended[ended.compile.source, ended.compile.targets] = ended

    def _ordinary(self, name: str) -> Compile:
        archs = [targets[0] for targets in self._targets if targets != (HOST,)]
        targets = whole_targets(archs or self.commands.inputs.archs[:1])
        return self.commands.kernel(name, targets, self._path(name, targets))

    def _path(self, name: str, targets: Targets) -> Path:
        return self.commands.scratch / "-".join(targets) / f"{name}.o"

    def _difference(self, name: str) -> str:
        """Describe how the composed sample differs from the ordinary object; empty if they are equal."""
        ordinary = self._ordinary(name).output.read_bytes()
        archs = [targets[0] for targets in self._targets if targets != (HOST,) and compiled_sources([name], targets)]
        code = {arch: self._path(name, (arch,)) for arch in archs}
        host = self._path(name, (HOST,)) if (HOST,) in self._targets else None
        absent = [path.name for path in (*code.values(), *([host] if host else [])) if not path.exists()]
        if absent:
            return f"the compiler does not compile {absent[0]}"
        fat_binary = find_fat_binary(ordinary)
        if code and self.bundler.bundle({arch: path.read_bytes() for arch, path in code.items()}) != fat_binary:
            return f"the device code of {name} differs from an ordinary compile"
        if host and embed(host.read_bytes(), fat_binary or b"") != ordinary:
            return f"the host code of {name} differs from an ordinary compile"
        return ""


def choose_samples(missing: Iterable[Part], guards: Guards) -> list[str]:
    """Return the cheapest of the missing sources of each kind and guard."""
    costs = {name: seed_cost(name, targets).cpu_s for name, targets in missing}
    cheapest: dict[tuple[str, str], str] = {}
    for name in sorted(costs, key=lambda name: (costs[name], name)):
        cheapest.setdefault((parse_kernel_kind(name)[0], guards.get(name, "")), name)
    return list(cheapest.values())


def choose_headers(missing: Iterable[Part], commands: CompileCommands) -> dict[tuple[tuple[str, ...], Targets], Path]:
    """Return where to precompile the preambles that enough of the missing sources begin with."""
    coded = [(name, targets) for name, targets in missing if not commands.is_empty(name, targets)]
    counts = Counter((commands.preamble(name), targets) for name, targets in coded)
    return {
        (directives, targets): commands.header_path(directives, targets)
        for (directives, targets), count in counts.items()
        if directives and count >= MIN_COMPILES
    }
