"""Options of the commands that compile or link kernels: where setup.py runs, which kernels it takes, for how long."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from wheelfactory.build.executor import ByBackend, Executor, LocalExecutor
from wheelfactory.commands.options import amount, directory, tell
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.host import Host
from wheelfactory.kernels.handover import Wanted
from wheelfactory.matrix.facts import Matrix


def add_kernels(parser: argparse.ArgumentParser) -> None:
    """``--kernels DIR`` and ``--budget HOURS``"""
    parser.add_argument(
        "--kernels",
        type=Path,
        metavar="DIR",
        help="take compiled kernels from the archives there (see `wheelfactory kernels`)",
    )
    add_budget(parser)


def wanted_of(options: argparse.Namespace, started: float) -> Wanted:
    """Where kernels may come from and how long it may take, counted from `started`, in seconds since 1970."""
    return Wanted(
        archives=directory(options.kernels) if options.kernels else None, deadline=deadline_of(options, started)
    )


def deadline_of(options: argparse.Namespace, started: float) -> float | None:
    """When the time of ``--budget`` is up, in seconds since 1970."""
    return started + options.budget * 3600 if options.budget else None


def add_budget(parser: argparse.ArgumentParser) -> None:
    """``--budget HOURS``"""
    parser.add_argument(
        "--budget",
        type=amount,
        metavar="HOURS",
        help="stop before that much time is up; exit code 6 then says: run the same command again",
    )


def add_executor(parser: argparse.ArgumentParser) -> None:
    """``--executor``, ``--slim`` and ``--memory``"""
    what = "where setup.py runs; auto: CK cells in containers if an engine answers, all else on this machine"
    _add_executor(parser, "auto", what)


def _add_executor(parser: argparse.ArgumentParser, default: str, what: str) -> None:
    parser.add_argument("--executor", choices=["auto", "local", "docker"], default=default, help=what)
    parser.add_argument("--slim", action="store_true", help="containers from the ROCm image without torch: less disk")
    parser.add_argument(
        "--memory", type=amount, metavar="GIB", help="memory of all containers together (default: what is free)"
    )


def add_place(parser: argparse.ArgumentParser) -> None:
    """``--executor`` for gates that need the torch of a CK cell, and what goes with it"""
    where = "where the ROCm torch of CK cells is: on this machine (default), in their images, or (auto) in those"
    _add_executor(parser, "local", f"{where} if an engine answers")


@contextmanager
def executor_of(
    options: argparse.Namespace, *, compiled: bool, matrix: Matrix, host: Host, environ: Mapping[str, str], cache: Path
) -> Iterator[Executor]:
    """Where cells are built or verified; `compiled` says whether some of them have compiled kernels.

    Raises `BuildError` if containers are asked for and no engine answers.
    """
    local = LocalExecutor(matrix, host, environ, cache)
    if options.executor == "local" or (options.executor == "auto" and not compiled):
        yield local
        return
    # takes a third of a second to import, and is not always wanted
    from wheelfactory.build.container.engine import connect
    from wheelfactory.build.container.executor import containers

    try:
        engine = connect(environ)
    except BuildError as error:
        if options.executor == "docker":
            raise
        tell(f"not in a container: {error}")
        yield local
        return
    with containers(engine, options.memory, slim=options.slim, matrix=matrix, machine=host, cache=cache) as executor:
        yield executor if options.executor == "docker" else ByBackend(executor, local)


def any_compiled(cells: Iterable[Cell]) -> bool:
    """Whether one of these cells has compiled kernels."""
    return any(cell.backend is Backend.CK for cell in cells)


def any_with_platform(wheels: Iterable[Path]) -> bool:
    """Whether one of these wheels is for a platform, as those with compiled kernels are, by its name."""
    return any(not wheel.name.endswith("-any.whl") for wheel in wheels)
