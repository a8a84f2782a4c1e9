"""Options of the commands that compile or link kernels: build host, compiled kernels, time limit."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from wheelfactory.build.executor import Executor, LocalExecutor
from wheelfactory.commands.options import add_option, add_shared, print_messages
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.kernels.setup_env import Cluster, CompileScope, store_folder
from wheelfactory.kernels.storage import keep_used_sets, limit_store
from wheelfactory.matrix.facts import Context

REMOTE_VARIABLE = "WHEELFACTORY_REMOTE"
"""The environment variable for `--remote`."""


def add_kernels(parser: argparse.ArgumentParser, *, publishes: bool = False) -> None:
    """Add ``--kernels DIR``, ``--budget HOURS`` and ``--remote``."""
    add_option(parser, "--kernels DIR", "link compiled kernels from the archives in DIR (see `wheelfactory kernels`)")
    add_shared(parser, "--budget HOURS")
    add_remote(parser, publishes=publishes)


def read_scope(options: argparse.Namespace, started: float) -> CompileScope:
    """Return the kernel archives, the deadline and the cluster of a build; `started` is in seconds since 1970."""
    archives, deadline = read_archives(options), read_deadline(options, started)
    return CompileScope(archives=archives, deadline=deadline, cluster=read_cluster(options))


def read_archives(options: argparse.Namespace) -> Path | None:
    """Return the folder of ``--kernels``, or None. Raises `InputError` if it is missing: without it, compiles begin."""
    archives: Path | None = options.kernels
    if archives and not archives.is_dir():
        raise InputError("no such directory", str(archives), "name the one that holds the kernel archives")
    return archives and archives.absolute()


def add_remote(parser: argparse.ArgumentParser, *, publishes: bool = False) -> None:
    """Add ``--remote`` and the options that go with it.

    For a command that publishes, a cluster must compile everything again.
    """
    group = parser.add_argument_group("compile kernels on a cluster (see docs/how-to/compile-on-a-cluster.md)")
    server = f"server of the Remote Execution API: grpcs://HOST:PORT/INSTANCE (default: the variable {REMOTE_VARIABLE})"
    add_option(group, "--remote URL", server)
    add_option(group, "--remote-token FILE", "send the bearer token in FILE")
    add_option(group, "--remote-ca FILE", "verify the server with these certificates (default: the system's)")
    what = "use only workers with this property; may be repeated"
    add_option(group, "--remote-platform KEY=VALUE", what, [], type=_property, action="append")
    parser.set_defaults(publishes=publishes)
    if not publishes:
        add_option(group, "--ignore-remote-cache", "compile again what the server has cached")
    what = "compile N random kernels of the cluster on this machine, too, and compare"
    add_option(group, "--verify-sample N", what, 0)


def read_cluster(options: argparse.Namespace) -> Cluster | None:
    """Return the cluster that the options name, or the variable; None for neither. Raises `InputError`."""
    url = options.remote or options.environ.get(REMOTE_VARIABLE)
    if not url:
        for name in ("remote_token", "remote_ca", "remote_platform", "ignore_remote_cache", "verify_sample"):
            if getattr(options, name, None):
                option = f"--{name.replace('_', '-')}"
                raise InputError("bad arguments", f"{option} without --remote", "add --remote grpcs://HOST:PORT")
        return None
    try:  # a distribution of its own, packages/remote_execution
        from wheelfactory_remote.cluster import RemoteCluster
        from wheelfactory_remote.server import parse_remote
    except ModuleNotFoundError as error:
        hint = "in a checkout of wheelfactory: pip install packages/remote_execution"
        raise InputError("no client of the Remote Execution API", str(error), hint) from None
    remote = parse_remote(
        url,
        token=options.remote_token,
        ca=options.remote_ca,
        platform=dict(options.remote_platform),
        ignore_cache=getattr(options, "ignore_remote_cache", False),
        sample=options.verify_sample,
        publishes=options.publishes,
    )
    return RemoteCluster(remote)


def _property(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"not KEY=VALUE: {text}")
    return key, value


def read_deadline(options: argparse.Namespace, started: float) -> float | None:
    """Return the end of ``--budget`` in seconds since the epoch, or None without a limit."""
    return started + options.budget * 3600 if options.budget else None


@contextmanager
def use_store(cache: Path, max_bytes: int | None = None, *, compiled: bool = True) -> Iterator[None]:
    """Keep all kernel sets that the block uses; afterwards remove unused ones until all take at most `max_bytes`.

    `compiled` tells whether the block uses any kernels.
    """
    kernels = store_folder(cache)
    with keep_used_sets(kernels) if compiled else nullcontext():
        try:
            yield
        finally:
            if max_bytes is not None:
                with log_to_stderr():
                    limit_store(kernels, max_bytes)


_SETUP_PY = "run setup.py on this machine, or for CK cells in containers, if an engine is running"


def add_executor(parser: argparse.ArgumentParser, default: str = "auto", what: str = _SETUP_PY) -> None:
    """Add ``--executor``, ``--slim`` and ``--memory``."""
    add_option(parser, "--executor auto|local|docker", what, default)
    add_option(parser, "--slim", "start from the smaller ROCm image without torch, and install torch into it")
    add_option(parser, "--memory GIB", "memory limit of all containers together (default: the free memory)")


def add_gate_executor(parser: argparse.ArgumentParser) -> None:
    """Add ``--executor``, ``--slim`` and ``--memory`` for gates that need the torch of a CK cell."""
    what = (
        "load CK wheels with the torch of this machine, or of the cells' images; auto: images if an engine is running"
    )
    add_executor(parser, "local", what)


@contextmanager
def open_executor(options: argparse.Namespace, *, compiled: bool, context: Context) -> Iterator[Executor]:
    """Open the executor that ``--executor`` selects; `compiled` is whether any cell has compiled kernels.

    Raises `BuildError` for ``--executor docker`` if no container engine answers.
    """
    local = LocalExecutor(context)
    if options.executor == "local" or (options.executor == "auto" and not compiled):
        yield local
        return
    # imported late: takes a third of a second, and most commands need no container
    from wheelfactory.build.container_executor import open_containers
    from wheelfactory.build.engine import connect_engine

    try:
        engine = connect_engine(context.environ)
    except BuildError as error:
        if options.executor == "docker":
            raise
        print_messages(f"not using containers: {error}")
        yield local
        return
    here = options.executor == "auto"
    with open_containers(engine, options.memory, slim=options.slim, triton_here=here, context=context) as executor:
        yield executor


def has_compiled_cell(cells: Iterable[Cell]) -> bool:
    """Whether any of the cells has compiled kernels."""
    return any(cell.backend is Backend.CK for cell in cells)


def has_platform_wheel(wheels: Iterable[Path]) -> bool:
    """Whether any wheel's file name has a platform tag, as wheels with compiled kernels do."""
    return any(not wheel.name.endswith("-any.whl") for wheel in wheels)
