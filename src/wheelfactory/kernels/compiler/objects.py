"""Compiles of one set -> objects: each kept in the store as it ends, its cost recorded, and a line printed."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.core.digest import file_sha256
from wheelfactory.kernels.compiler import launcher
from wheelfactory.kernels.compiler.costs import Measurement
from wheelfactory.kernels.compiler.edges import CompileInputs, Edge
from wheelfactory.kernels.compiler.flags import rocm_root, source_root
from wheelfactory.kernels.compiler.key import key_environment
from wheelfactory.kernels.compiler.request import CompileRequest
from wheelfactory.kernels.compiler.schedule import EdgeCommand, EndedCompile, run_compiles
from wheelfactory.kernels.compiler.status import estimate_time_left, render_status_line
from wheelfactory.kernels.compiler.store import ObjectRecord, Store

BINDING_CPU_S = 60.0
"""CPU seconds that a binding is taken to need; not measured."""

MIN_FREE_BYTES = 1 << 20
"""Bytes; with less room than this a compile that failed is taken to have failed for that."""

CCACHE_MAX_SIZE = "10G"
"""Of the compiler cache: several sets, at 355 MB of objects for one arch and 550 MB for three (facts)."""

_HITS = ("direct_cache_hit", "preprocessed_cache_hit")


@dataclass
class ObjectCompiler:
    """What a set is compiled with, and what is known while it is."""

    request: CompileRequest
    inputs: CompileInputs
    store: Store
    environ: Mapping[str, str]
    predicted_s: Mapping[str, float]
    """CPU seconds of each kernel."""
    failed: bool = False
    """Whether a compile ended with an error of its own."""
    late: bool = False
    """Whether a compile was not started because the time is up."""
    error: str = ""
    """Why an object could not be kept, or written in the first place."""
    slowest_ratio: float = 1.0
    """The most that a compile has taken over what was predicted; at least one, as a light one says little of others."""
    peak_mib: int = 0
    _stats: Path = field(init=False)
    """Where the compiler cache says whether it hit."""

    def compile_edges(self, edges: Sequence[Edge]) -> None:
        """Compile these, and keep each that is a kernel. Raises as `run_compiles`."""
        for edge in edges:  # what an earlier run left may be of another key
            Path(edge.output).unlink(missing_ok=True)
        begin, done, done_s = time.monotonic(), 0, 0.0
        total_s = sum(map(self._predicted_s, edges))
        with (
            tempfile.TemporaryDirectory() as stats,
            closing(run_compiles(edges, self.request.jobs, self._command, self._may_start)) as compiles,
        ):
            self._stats = Path(stats)
            for ended in compiles:
                if ended.code == 0 and ended.edge.is_kernel:
                    self._keep(ended)
                done, done_s = done + 1, done_s + self._predicted_s(ended.edge)
                elapsed_s = time.monotonic() - begin
                left_s = estimate_time_left(total_s - done_s, done_s, elapsed_s, self.request.jobs)
                name, peak_mib = ended.edge.name, self.peak_mib
                print(render_status_line(name, done, len(edges), elapsed_s=elapsed_s, left_s=left_s, peak_mib=peak_mib))
                if ended.code:
                    self._note_failure(ended)
                sys.stdout.write(ended.output)
                sys.stdout.flush()

    def _predicted_s(self, edge: Edge) -> float:
        return self.predicted_s.get(edge.name, BINDING_CPU_S)

    def _may_start(self, edge: Edge) -> bool:
        """Whether it would end in time, and what it makes could be kept, or linked if it is a binding."""
        deadline = self.request.deadline
        late = deadline is not None and time.time() + self._predicted_s(edge) * self.slowest_ratio > deadline
        of_no_use = self.error or (self.late and not edge.is_kernel)
        self.late = self.late or late
        return not late and not of_no_use

    def _command(self, edge: Edge) -> EdgeCommand:
        if not edge.is_kernel:
            return EdgeCommand(["/bin/sh", "-c", edge.command], str(Path.cwd()), self.environ)
        words, environ = launcher.compile_command(
            edge.arguments(), edge.source, dict(self.environ), disable_early_inline=self.inputs.early_inline_disabled
        )
        if self.request.ccache:
            words = [self.request.ccache, *words]
            settings = sorted(key_environment(self.environ, rocm_root(self.inputs.hipcc)).items())
            # who the compiler is, as ccache could only look at its first file
            identity = " ".join([self.inputs.compiler.content, *(f"{name}={value}" for name, value in settings)])
            environ.update(
                CCACHE_DIR=self.request.ccache_dir,
                CCACHE_CONFIGPATH=os.devnull,
                CCACHE_COMPILERCHECK=f"string:{identity}",
                CCACHE_MAXSIZE=CCACHE_MAX_SIZE,
                CCACHE_STATSLOG=str(self._stats / edge.name),
            )
        return EdgeCommand(words, source_root(edge.source), environ)

    def _keep(self, ended: EndedCompile) -> None:
        """Keep an object in the store and its cost in the ledger; `trouble` if there is no room."""
        source, built = ended.edge.name, Path(ended.edge.output)
        stats = self._stats / source
        try:
            said = stats.read_text(encoding="utf-8", errors="replace") if stats.exists() else ""
            entry = ObjectRecord(
                source=source,
                archs=self.inputs.archs,
                sha256=file_sha256(built),
                size=built.stat().st_size,
                cpu_s=ended.cpu_s,
                peak_mib=ended.peak_mib,
                start=ended.start,
                end=ended.end,
                cached=any(hit in said for hit in _HITS),
            )
            self.store.save_object(built, entry)
            if not entry.cached:
                self._learn(entry)
        except OSError as error:
            self.error = f"{self.store.folder}: {error.strerror}"
            print(f"error: not kept: {source}: {error.strerror}", file=sys.stderr)

    def _learn(self, entry: ObjectRecord) -> None:
        """Remember what a compile cost, for the rest of them and in the ledger."""
        self.peak_mib = max(self.peak_mib, entry.peak_mib)
        self.slowest_ratio = max(self.slowest_ratio, (entry.end - entry.start) / self.predicted_s[entry.source])
        compiler = self.inputs.compiler.content
        line = Measurement(entry.source, entry.archs, compiler, entry.cpu_s, entry.peak_mib, entry.size).to_line()
        with Path(self.request.ledger).open("a", encoding="utf-8") as file:
            file.write(line)

    def _note_failure(self, ended: EndedCompile) -> None:
        """Print it as ninja does. A compiler that finds no room to write says so in words of its own."""
        self.failed = True
        folder = Path(ended.edge.output).parent
        if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
            self.error = f"{folder}: {os.strerror(errno.ENOSPC)}"
        print(f"FAILED: [code={ended.code}] {shlex.quote(ended.edge.output)} ")
        print(ended.edge.command)
