"""What setup.py is handed so that kernels are compiled once, and what is heard of it afterwards.

setup.py finds the launcher where it looks for a compiler and our ninja where it looks for ninja (see `compiler`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.build.setup_py import SetupExtras, SetupRun
from wheelfactory.core.checkout import PACKAGE_DIR
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import logger
from wheelfactory.kernels.archive import drop_redundant_shards, find_archives, unpack_archive
from wheelfactory.kernels.compiler import launcher
from wheelfactory.kernels.compiler import ninja as our_ninja
from wheelfactory.kernels.compiler.flags import APPEND_VARIABLE
from wheelfactory.kernels.compiler.request import REQUEST_VARIABLE, TIME_UP, CompileRequest, CompileResult
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.timeline import render_trace


@dataclass(frozen=True)
class CompileScope:
    """What of a kernel set is wanted, and within which time."""

    archives: Path | None = None
    """A folder of kernel archives to take objects from, one of which must be of the set."""
    shard: Shard | None = None
    """Compile only this, and link nothing."""
    shard_ledger: Path | None = None
    """The ledger by which shards are cut, the same on every machine; None for the seed table alone."""
    deadline: float | None = None
    """Seconds since 1970 at which every compile should have ended."""


FULL_SCOPE = CompileScope()
"""Every kernel, from the store or the compiler, and the link."""


def store_folder(cache: Path) -> Path:
    """Where the stores of all kernel sets are."""
    return cache / "kernels"


def ledger_path(cache: Path) -> Path:
    """Where every compile leaves what it cost."""
    return cache / "ledger.jsonl"


def setup_env(
    setup: SetupRun,
    set_id: str,
    wanted: CompileScope,
    *,
    cache: Path,
    appended: str | None,
    planned: tuple[str, ...] = (),
) -> SetupExtras:
    """What makes setup.py compile through the factory; `appended` are the flags that hipcc itself adds (`APPEND_VARIABLE`).

    `planned` are the names of the sources that the compile must have, empty for any.
    Raises `InputError` for an unusable archive.
    """
    place, kept, ccache_folder = setup.build_host, store_folder(cache), cache / "ccache"
    order = CompileRequest(
        ninja=str(place.ninja),
        kernels=str(kept),
        ledger=str(ledger_path(cache)),
        result_file=str(_report_path(setup)),
        jobs=setup.recipe.jobs,
        ccache=place.ccache,
        ccache_dir=str(ccache_folder),
        shard=str(wanted.shard or ""),
        shard_ledger=str(wanted.shard_ledger or ""),
        deadline=wanted.deadline,
        archive_keys=tuple(_unpacked(kept, set_id, wanted.archives)) if wanted.archives else (),
        planned_sources=planned,
    )
    written = setup.scratch / "order.json"
    order.write(written)
    bin_folder = setup.scratch / "bin"
    _write_ninja(bin_folder, place.python)
    hipcc = shlex.quote(f"{place.machine.rocm_path}/bin/hipcc")
    environ = {
        REQUEST_VARIABLE: str(written),
        "PYTORCH_NVCC": f"{_python_program(place.python, launcher.__file__)} {hipcc}",
        "PATH": f"{bin_folder}:{place.environ['PATH']}",
        **({APPEND_VARIABLE: appended} if appended else {}),
    }
    for folder in (kept, ccache_folder):
        folder.mkdir(parents=True, exist_ok=True)
    ledger_path(cache).touch()
    reads = (PACKAGE_DIR, *((wanted.shard_ledger,) if wanted.shard_ledger else ()))
    return SetupExtras(environ, reads, (kept, ccache_folder, ledger_path(cache)), wanted.deadline)


def _write_ninja(folder: Path, python: Path) -> None:
    """Make a folder for PATH in which ``ninja`` is ours."""
    folder.mkdir()
    program = folder / "ninja"
    program.write_text(f'#!/bin/sh\nexec {_python_program(python, our_ninja.__file__)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)


def _python_program(python: Path, file: str | None) -> str:
    """A program of `compiler`, as a shell starts it: without the packages of that Python, which it does not need."""
    return f"{shlex.quote(str(python))} -ISB {shlex.quote(str(Path(str(file)).resolve()))}"


def _unpacked(kernels: Path, set_id: str, folder: Path) -> Iterator[dict[str, object]]:
    """The keys of the archives of a set, their objects now in the store. Raises `BuildError` if there are none."""
    archives = find_archives(folder, set_id)
    if not archives:
        hint = f"make one: wheelfactory kernels {set_id}; or build without --kernels"
        raise BuildError("no kernel archive", f"of {set_id} in {folder}", hint)
    for archive in drop_redundant_shards(archives):
        done = unpack_archive(archive, kernels)
        if done.damaged:
            logger.warning("%s: %d objects are damaged and will be compiled again", archive.name, len(done.damaged))
        yield dict(done.store.key.parts)


def read_interrupted_result(setup: SetupRun) -> CompileResult | None:
    """How far a compile came that was ended; None if that was before it compiled, or it was refused."""
    with suppress(BuildError):
        return CompileResult.read(_report_path(setup))
    return None


def read_outcome(setup: SetupRun, kernels: Path, log: Path) -> CompileResult | None:
    """What became of the compile; None if it did not come so far. Leaves its timeline beside the log.

    Raises `BuildError` with the reason if it was refused, `RunAgainError` if the time was up.
    """
    report = CompileResult.read(_report_path(setup))
    if report is None:
        return None
    entries = [
        entry for entry in Store.open(kernels, report.key).read_records().values() if entry.start >= report.started
    ]
    if entries:
        timeline = log.with_suffix(".trace.json")
        write_atomic(timeline, render_trace(entries).encode())
        logger.info("timeline of %d compiles in %s", len(entries), timeline)
    if report.state == TIME_UP:
        which = f"{report.reused + report.compiled} of {len(report.sources)} kernels are compiled"
        raise RunAgainError("the time is up", which, "run the same command again")
    return report


def _report_path(setup: SetupRun) -> Path:
    return setup.scratch / "report.json"
