"""What setup.py is handed so that kernels are compiled once, and what is heard of it afterwards.

setup.py finds the launcher where it looks for a compiler and our ninja where it looks for ninja (see `compiler`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.build.setup_py import Handed, Setup
from wheelfactory.core.checkout import PACKAGE
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import logger
from wheelfactory.kernels.archive import find_archives, needed, unpack
from wheelfactory.kernels.compiler import launcher
from wheelfactory.kernels.compiler import ninja as our_ninja
from wheelfactory.kernels.compiler.flags import APPENDED
from wheelfactory.kernels.compiler.order import LATER, VARIABLE, Order, Report
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.timeline import trace


@dataclass(frozen=True)
class Wanted:
    """What of a kernel set is wanted, and within which time."""

    archives: Path | None = None
    """A folder of kernel archives to take objects from, one of which must be of the set."""
    shard: Shard | None = None
    """Compile only this, and link nothing."""
    cut_by: Path | None = None
    """The ledger by which shards are cut, the same on every machine; None for the seed table alone."""
    deadline: float | None = None
    """Seconds since 1970 at which every compile should have ended."""


ALL = Wanted()
"""Every kernel, from the store or the compiler, and the link."""


def kernels_folder(cache: Path) -> Path:
    """Where the stores of all kernel sets are."""
    return cache / "kernels"


def ledger_path(cache: Path) -> Path:
    """Where every compile leaves what it cost."""
    return cache / "ledger.jsonl"


def hand_over(
    setup: Setup,
    set_id: str,
    wanted: Wanted,
    *,
    cache: Path,
    appended: str | None,
    planned: tuple[str, ...] = (),
) -> Handed:
    """What makes setup.py compile through the factory; `appended` are the flags that hipcc itself adds (`APPENDED`).

    `planned` are the names of the sources that the compile must have, empty for any.
    Raises `InputError` for an unusable archive.
    """
    place, kept, ccache_folder = setup.place, kernels_folder(cache), cache / "ccache"
    order = Order(
        ninja=str(place.ninja),
        kernels=str(kept),
        ledger=str(ledger_path(cache)),
        report=str(_report_path(setup)),
        jobs=setup.recipe.jobs,
        ccache=place.ccache,
        ccache_dir=str(ccache_folder),
        shard=str(wanted.shard or ""),
        cut_by=str(wanted.cut_by or ""),
        deadline=wanted.deadline,
        given=tuple(_unpacked(kept, set_id, wanted.archives)) if wanted.archives else (),
        planned=planned,
    )
    written = setup.scratch / "order.json"
    order.write(written)
    bin_folder = setup.scratch / "bin"
    _write_ninja(bin_folder, place.python)
    hipcc = shlex.quote(f"{place.host.rocm_path}/bin/hipcc")
    environ = {
        VARIABLE: str(written),
        "PYTORCH_NVCC": f"{_python_program(place.python, launcher.__file__)} {hipcc}",
        "PATH": f"{bin_folder}:{place.environ['PATH']}",
        **({APPENDED: appended} if appended else {}),
    }
    for folder in (kept, ccache_folder):
        folder.mkdir(parents=True, exist_ok=True)
    ledger_path(cache).touch()
    reads = (PACKAGE, *((wanted.cut_by,) if wanted.cut_by else ()))
    return Handed(environ, reads, (kept, ccache_folder, ledger_path(cache)), wanted.deadline)


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
    for archive in needed(archives):
        done = unpack(archive, kernels)
        if done.damaged:
            logger.warning("%s: %d objects are damaged and will be compiled again", archive.name, len(done.damaged))
        yield dict(done.store.key.parts)


def report_of(setup: Setup) -> Report | None:
    """How far a compile came that was ended; None if that was before it compiled, or it was refused."""
    with suppress(BuildError):
        return Report.read(_report_path(setup))
    return None


def heard(setup: Setup, kernels: Path, log: Path) -> Report | None:
    """What became of the compile; None if it did not come so far. Leaves its timeline beside the log.

    Raises `BuildError` with the reason if it was refused, `RunAgainError` if the time was up.
    """
    report = Report.read(_report_path(setup))
    if report is None:
        return None
    entries = [entry for entry in Store.open(kernels, report.key).finished().values() if entry.start >= report.started]
    if entries:
        timeline = log.with_suffix(".trace.json")
        write_atomic(timeline, trace(entries).encode())
        logger.info("timeline of %d compiles in %s", len(entries), timeline)
    if report.state == LATER:
        which = f"{report.taken + report.compiled} of {len(report.names)} kernels are compiled"
        raise RunAgainError("the time is up", which, "run the same command again")
    return report


def _report_path(setup: Setup) -> Path:
    return setup.scratch / "report.json"
