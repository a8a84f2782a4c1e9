"""Options of the commands that compile or link kernels: where setup.py runs, which kernels it takes, for how long."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from wheelfactory.build.executor import Executor, LocalExecutor, PerBackendExecutor
from wheelfactory.commands.options import as_directory, positive_number, print_messages
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.host import Host
from wheelfactory.kernels.setup_env import CompileScope
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


def read_scope(options: argparse.Namespace, started: float) -> CompileScope:
    """Where kernels may come from and how long it may take, counted from `started`, in seconds since 1970."""
    return CompileScope(
        archives=as_directory(options.kernels) if options.kernels else None, deadline=read_deadline(options, started)
    )


def read_deadline(options: argparse.Namespace, started: float) -> float | None:
    """When the time of ``--budget`` is up, in seconds since 1970."""
    return started + options.budget * 3600 if options.budget else None


def add_budget(parser: argparse.ArgumentParser) -> None:
    """``--budget HOURS``"""
    parser.add_argument(
        "--budget",
        type=positive_number,
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
        "--memory",
        type=positive_number,
        metavar="GIB",
        help="memory of all containers together (default: what is free)",
    )


def add_gate_executor(parser: argparse.ArgumentParser) -> None:
    """``--executor`` for gates that need the torch of a CK cell, and what goes with it"""
    where = "where the ROCm torch of CK cells is: on this machine (default), in their images, or (auto) in those"
    _add_executor(parser, "local", f"{where} if an engine answers")


@contextmanager
def open_executor(
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
    from wheelfactory.build.container.engine import connect_engine
    from wheelfactory.build.container.executor import open_containers

    try:
        engine = connect_engine(environ)
    except BuildError as error:
        if options.executor == "docker":
            raise
        print_messages(f"not in a container: {error}")
        yield local
        return
    with open_containers(
        engine, options.memory, slim=options.slim, matrix=matrix, machine=host, cache=cache
    ) as executor:
        yield executor if options.executor == "docker" else PerBackendExecutor(executor, local)


def has_compiled_cell(cells: Iterable[Cell]) -> bool:
    """Whether one of these cells has compiled kernels."""
    return any(cell.backend is Backend.CK for cell in cells)


def has_platform_wheel(wheels: Iterable[Path]) -> bool:
    """Whether one of these wheels is for a platform, as those with compiled kernels are, by its name."""
    return any(not wheel.name.endswith("-any.whl") for wheel in wheels)
