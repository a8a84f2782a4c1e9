"""Run the compiles of one set: save each object as it ends, record its cost, print a status line."""

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

# CPU seconds to assume for a binding; a guess, not measured
BINDING_CPU_S = 60.0

MIN_FREE_BYTES = 1 << 20
"""With less free disk than this, a failed compile is attributed to a full disk."""

# room for several sets, at 355 MB of objects for one arch and 550 MB for three (measured)
CCACHE_MAX_SIZE = "10G"

_HITS = ("direct_cache_hit", "preprocessed_cache_hit")


@dataclass
class ObjectCompiler:
    """Compiles the edges of one set and keeps track of the results."""

    request: CompileRequest
    inputs: CompileInputs
    store: Store
    environ: Mapping[str, str]
    predicted_s: Mapping[str, float]
    """CPU seconds by kernel name."""
    failed: bool = False
    """Whether a compile failed."""
    late: bool = False
    """Whether a compile was skipped because it would end after the deadline."""
    error: str = ""
    """Why an object could not be written or saved; empty if none failed."""
    slowest_ratio: float = 1.0
    """Largest ratio of wall time to prediction so far. At least 1: a light compile says little about heavy ones."""
    peak_mib: int = 0
    _stats: Path = field(init=False)
    """Folder in which ccache logs hits."""

    def compile_edges(self, edges: Sequence[Edge]) -> None:
        """Compile these edges and save each kernel. Raises the errors of `run_compiles`."""
        for edge in edges:  # objects of an earlier run may have another key
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
        """Whether it would end in time, and its object could be saved or linked."""
        deadline = self.request.deadline
        late = deadline is not None and time.time() + self._predicted_s(edge) * self.slowest_ratio > deadline
        is_pointless = self.error or (self.late and not edge.is_kernel)
        self.late = self.late or late
        return not late and not is_pointless

    def _command(self, edge: Edge) -> EdgeCommand:
        if not edge.is_kernel:
            return EdgeCommand(["/bin/sh", "-c", edge.command], str(Path.cwd()), self.environ)
        words, environ = launcher.compile_command(
            edge.arguments(), edge.source, dict(self.environ), disable_early_inline=self.inputs.early_inline_disabled
        )
        if self.request.ccache:
            words = [self.request.ccache, *words]
            settings = sorted(key_environment(self.environ, rocm_root(self.inputs.hipcc)).items())
            # by default ccache hashes the compiler's first file only, which for hipcc is a wrapper
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
        """Save an object in the store and its cost in the ledger; set `error` if that fails."""
        source, built = ended.edge.name, Path(ended.edge.output)
        stats = self._stats / source
        try:
            stats_text = stats.read_text(encoding="utf-8", errors="replace") if stats.exists() else ""
            entry = ObjectRecord(
                source=source,
                archs=self.inputs.archs,
                sha256=file_sha256(built),
                size=built.stat().st_size,
                cpu_s=ended.cpu_s,
                peak_mib=ended.peak_mib,
                start=ended.start,
                end=ended.end,
                cached=any(hit in stats_text for hit in _HITS),
            )
            self.store.save_object(built, entry)
            if not entry.cached:
                self._record_cost(entry)
        except OSError as error:
            self.error = f"{self.store.folder}: {error.strerror}"
            print(f"error: cannot save object: {source}: {error.strerror}", file=sys.stderr)

    def _record_cost(self, entry: ObjectRecord) -> None:
        """Record a compile's cost, for the rest of the run and in the ledger."""
        self.peak_mib = max(self.peak_mib, entry.peak_mib)
        self.slowest_ratio = max(self.slowest_ratio, (entry.end - entry.start) / self.predicted_s[entry.source])
        compiler = self.inputs.compiler.content
        line = Measurement(entry.source, entry.archs, compiler, entry.cpu_s, entry.peak_mib, entry.size).to_line()
        with Path(self.request.ledger).open("a", encoding="utf-8") as file:
            file.write(line)

    def _note_failure(self, ended: EndedCompile) -> None:
        """Print the failure as ninja does."""
        self.failed = True
        folder = Path(ended.edge.output).parent
        # a compiler reports a full disk in many ways, so ask the file system instead of parsing its output
        if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
            self.error = f"{folder}: {os.strerror(errno.ENOSPC)}"
        print(f"FAILED: [code={ended.code}] {shlex.quote(ended.edge.output)} ")
        print(ended.edge.command)
