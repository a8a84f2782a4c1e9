"""Run setup.py in an environment in which it compiles kernels through the factory; read the result, draw a timeline.

setup.py starts our ninja as its ninja (see the package `compiler`). The timeline is for Perfetto or chrome://tracing,
in Google's Trace Event Format, as in ninjatracing and clang's ``-ftime-trace``: complete events with times in
microseconds, and a counter.
"""

from __future__ import annotations

import heapq
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from wheelfactory.build.setup_py import RawWheel, SetupExtras, SetupRun, run_setup
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.files import PACKAGE_DIR, write_atomic, write_launcher
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.kernels.archive import find_archives, unpack_archive
from wheelfactory.kernels.compiler import ninja as our_ninja
from wheelfactory.kernels.compiler.costs import Shard, parse_kernel_kind
from wheelfactory.kernels.compiler.hipcc import APPEND_VARIABLE
from wheelfactory.kernels.compiler.request import (
    REQUEST_VARIABLE,
    SHARD_DONE,
    SURVEYED,
    TIME_UP,
    CompileRequest,
    CompileResult,
)
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory.kernels.generator_commands import filter_environ
from wheelfactory.kernels.source_list import SourceList, list_planned_sources
from wheelfactory.matrix.facts import Context


class Cluster(Protocol):
    """Machines that compile kernels before the build host does; packages/remote_execution has one."""

    def fill_store(
        self, survey: Survey, cache: Path, report_progress: ProgressCallback, *, deadline: float | None
    ) -> AbstractContextManager[None]:
        """Save objects that the store in `cache` lacks; after the block, compare samples with those made in it.

        What it cannot compile is left for the block. Raises `InputError` or `BuildError` if it cannot be used at all,
        and `BuildError` after the block if a sample differs.
        """


@dataclass(frozen=True)
class CompileScope:
    """Which part of a kernel set to compile, and until when."""

    archives: Path | None = None
    """A folder of kernel archives to take objects from. It must have one of each set."""
    targets: tuple[str, ...] = ()
    """Compile only for these (see `compiler.targets`), and do not link; empty to compile everything and link."""
    shard: Shard | None = None
    """With `targets`: compile only this shard; None for all sources."""
    shard_ledger: Path | None = None
    """The ledger to cut shards by, which must be the same on every machine; None for the seed table alone."""
    deadline: float | None = None
    """Seconds since 1970. A compile that would end later is not started."""
    cluster: Cluster | None = None
    """It compiles first what the store lacks; None to compile all on the build host."""


FULL_SCOPE = CompileScope()

CompileOutcome: TypeAlias = "tuple[RawWheel | None, CompileResult | None]"
"""The wheel, None if our ninja stopped setup.py before the link as requested; and the result of the compile, None if
setup.py compiles nothing."""


def store_folder(cache: Path) -> Path:
    """The folder of all kernel set stores."""
    return cache / "kernels"


def ledger_path(cache: Path) -> Path:
    """The file to which every compile appends its cost."""
    return cache / "ledger.jsonl"


def setup_env(
    setup: SetupRun,
    set_ids: Sequence[str],
    scope: CompileScope,
    context: Context,
    *,
    planned: SourceList | None = None,
    survey: Path | None = None,
) -> SetupExtras:
    """Write the files that a compile through wheelfactory needs, and return what to add to the run of setup.py.

    `set_ids` are the sets that the build links; `planned` are the sources that it must compile, None for any. `survey`
    is a file in which to list the compiles instead of running them.
    Raises `InputError` for an unusable archive, `BuildError` if there is none.
    """
    build_host, stores, ledger = setup.build_host, store_folder(context.cache), ledger_path(context.cache)
    request = CompileRequest(
        ninja=str(build_host.ninja),
        kernels=str(stores),
        ledger=str(ledger),
        result_file=str(_result_path(setup)),
        jobs=setup.recipe.jobs,
        targets=scope.targets,
        shard=str(scope.shard or ""),
        shard_ledger=str(scope.shard_ledger or ""),
        deadline=scope.deadline,
        archive_keys=tuple(_unpack_archives(stores, set_ids, scope.archives)) if scope.archives else (),
        newer_system=setup.recipe.cell.amd_torch,  # the wheel's image, not the kernels'
        planned_sources=planned.sources if planned else (),
        survey=str(survey or ""),
    )
    request_file = setup.scratch / "request.json"
    request.write(request_file)
    stores.mkdir(parents=True, exist_ok=True)
    ledger.touch()
    environ = _make_environ(setup, request_file, context.environ.get(APPEND_VARIABLE), planned)
    reads = (PACKAGE_DIR, *((scope.shard_ledger,) if scope.shard_ledger else ()))
    return SetupExtras(environ, reads, (stores, ledger), scope.deadline)


def _make_environ(
    setup: SetupRun, request_file: Path, appended: str | None, planned: SourceList | None
) -> dict[str, str]:
    """Make the variables with which setup.py finds our ninja, and that the request."""
    build_host, bin_folder = setup.build_host, setup.scratch / "bin"
    bin_folder.mkdir()
    # -I -S: the packages of the build's Python could shadow what the program imports
    write_launcher(bin_folder / "ninja", [build_host.python, "-ISB", Path(str(our_ninja.__file__)).resolve()])
    return {
        REQUEST_VARIABLE: str(request_file),
        "PYTORCH_NVCC": shlex.quote(f"{build_host.machine.rocm_path}/bin/hipcc"),
        "PATH": f"{bin_folder}:{build_host.environ['PATH']}",
        **({APPEND_VARIABLE: appended} if appended else {}),
        **(filter_environ(setup.scratch / "python", planned.filtered) if planned and planned.filtered else {}),
    }


def _unpack_archives(kernels: Path, set_ids: Sequence[str], folder: Path) -> Iterator[dict[str, object]]:
    """Unpack the archives of sets into the store, and yield their keys. Raises `BuildError` if a set has none."""
    archives = {set_id: find_archives(folder, set_id) for set_id in set_ids}
    absent = [set_id for set_id, found in archives.items() if not found]
    if absent:
        hint = f"make it: wheelfactory kernels {absent[0]}; or build without --kernels"
        raise BuildError("no archive of a kernel set", f"{', '.join(absent)} in {folder}", hint)
    for archive in (path for found in archives.values() for path in found):
        yield dict(unpack_archive(archive, kernels).set_key.parts)


def run_compile(setup: SetupRun, set_ids: Sequence[str], scope: CompileScope, context: Context) -> CompileOutcome:
    """Run setup.py, which compiles what `scope` says, and links the sets with these ids.

    Raises `InputError` for a wrong digest in the matrix, and the errors of `setup_env`, `run_setup`, `read_outcome` and
    `Cluster.fill_store`.
    """
    cell, cache = setup.recipe.cell, context.cache
    release, archs = context.matrix.flash_attn[cell.flash_attn], setup.recipe.archs
    planned = list_planned_sources(cell.flash_attn, release, cache, context.environ, archs)
    prepare = partial(setup_env, set_ids=set_ids, scope=scope, context=context, planned=planned)
    run = partial(_run_setup, kernels=store_folder(cache))
    compiled_first: AbstractContextManager[None] = nullcontext()
    if scope.cluster and (survey := _survey_compiles(setup, prepare, run)):
        compiled_first = scope.cluster.fill_store(survey, cache, setup.report_progress, deadline=scope.deadline)
    with compiled_first:
        return run(setup, prepare(setup))


def _survey_compiles(
    setup: SetupRun, prepare: Callable[..., SetupExtras], run: Callable[..., CompileOutcome]
) -> Survey | None:
    """List the compiles of a build; None if the release compiles no kernels."""
    folder = setup.scratch / "survey"
    folder.mkdir()
    survey_file, log = folder / "survey.json", setup.log.with_name(f"{setup.log.stem}-survey.log")
    listing = replace(setup, scratch=folder, log=log)
    raw, _ = run(listing, prepare(listing, survey=survey_file))
    return None if raw else Survey.read(survey_file)


def _run_setup(setup: SetupRun, extras: SetupExtras, *, kernels: Path) -> CompileOutcome:
    try:
        raw = run_setup(setup, extras)
    except BuildError:
        # raises the compile's own error, which is more precise than the failure of setup.py
        result = read_outcome(setup, kernels)
        if result is None or result.state not in (SHARD_DONE, SURVEYED):
            raise
        return None, result
    return raw, read_outcome(setup, kernels)


def read_interrupted_result(setup: SetupRun) -> CompileResult | None:
    """Read the result of a compile that was stopped at its deadline; None if it never started or was refused."""
    with suppress(BuildError):
        return CompileResult.read(_result_path(setup))
    return None


def read_outcome(setup: SetupRun, kernels: Path) -> CompileResult | None:
    """Read the result of a compile, and write its timeline beside the log; None if it did not start.

    Raises `BuildError` with the reason if it was refused, `RunAgainError` if it ran out of time.
    """
    result = CompileResult.read(_result_path(setup))
    if result is None:
        return None
    records = (entry for key in result.keys for entry in Store.open(kernels, key).read_records().values())
    entries = [entry for entry in records if entry.start >= result.started]
    if entries:
        timeline = setup.log.with_suffix(".trace.json")
        write_atomic(timeline, render_trace(entries).encode())
        logger.info("timeline of %d compiles in %s", len(entries), timeline)
    if result.state == TIME_UP:
        which = f"{result.reused + result.compiled} of {result.total} kernels are compiled"
        raise RunAgainError("time limit reached", which, "run the same command again")
    return result


def _result_path(setup: SetupRun) -> Path:
    return setup.scratch / "result.json"


def render_trace(entries: Iterable[ObjectRecord]) -> str:
    """Render the compiles as a JSON document of trace events; times count from the first start."""
    ordered = sorted(entries, key=lambda entry: (entry.start, entry.end, entry.source))
    begin = ordered[0].start if ordered else 0.0
    spans = [(entry, round((entry.start - begin) * 1e6), round((entry.end - begin) * 1e6)) for entry in ordered]
    events = [*_compile_events(spans), *_memory_events(spans)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _compile_events(spans: Iterable[tuple[ObjectRecord, int, int]]) -> Iterator[dict[str, Any]]:
    """Yield an event for each compile, on as few threads as possible."""
    running: list[tuple[int, int]] = []
    free: list[int] = []
    for entry, start, end in spans:
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        thread = heapq.heappop(free) if free else len(running)
        # a clock change can make the duration negative
        heapq.heappush(running, (max(start, end), thread))
        yield {
            "name": f"{entry.source} for {' '.join(entry.targets)}",
            "cat": parse_kernel_kind(entry.source)[0] or "other",
            "ph": "X",
            "ts": start,
            "dur": max(0, end - start),
            "pid": 0,
            "tid": thread,
            "args": {"CPU s": entry.cpu_s, "peak MiB": entry.peak_mib},
        }


def _memory_events(spans: Iterable[tuple[ObjectRecord, int, int]]) -> Iterator[dict[str, Any]]:
    """The sum of the peak MiB of all running compiles, an upper bound, at each change."""
    changes: Counter[int] = Counter()
    for entry, start, end in spans:
        if end > start:
            changes[start] += entry.peak_mib
            changes[end] -= entry.peak_mib
    level = 0
    for time, change in sorted(changes.items()):
        level += change
        yield {"name": "memory at most", "ph": "C", "ts": time, "pid": 0, "args": {"MiB": level}}
