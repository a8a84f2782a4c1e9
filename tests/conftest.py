"""What several tests need: environments, upstream's own code, a ROCm that ends at the compiler, a real HIP compiler.

Works with and without pytest-xdist, for which `scheduling` says who runs what.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from command_line import Cli, CommandResult, run_command
from few_archs import write_few_archs
from hip_toolchain import HipToolchain, find_missing_requirement, make_hip_toolchain
from rocm_machine import (
    CELL,
    FIRST_CELL_LOG,
    LEAKS,
    NO_ENGINE,
    install_build_tools,
    make_machine,
    make_rocm,
    pack_kernels,
)
from shared_folder import file_lock, make_once, share_triton_cache
from stage_arguments import local_executor
from wheel_factory import read_zip
from wheelfactory.core.cell import Cell
from wheelfactory.core.host import Host, read_host
from wheelfactory.core.progress import ignore_progress
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.build import build_cell
from wheelfactory.verify.gates import is_refused, verify

if TYPE_CHECKING:
    from scheduling import SlowFilesFirst


# One profile everywhere: several processes share the cores, so the time of one example says nothing about the code.
# In CI the same examples run each time (hypothesis's own `ci` profile), so a red run is red again.
settings.register_profile(
    "wheelfactory",
    settings.get_profile("ci" if os.environ.get("CI") else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("wheelfactory")

LONGEST_FILES = 40
"""How many files are shown with their seconds after all tests."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SlowFilesFirst:
    """Whatever ``--dist`` says."""
    from scheduling import SlowFilesFirst

    return SlowFilesFirst(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the processes of pytest-xdist; one process keeps the order of the files."""
    if hasattr(config, "workerinput"):
        from scheduling import slow_first

        items[:] = slow_first(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Keep the seconds of every phase in ``.pytest_cache/v/durations``, and show the files that took longest."""
    found = [report for reports in terminalreporter.stats.values() for report in reports]
    phases = [(one.nodeid, one.when, one.duration) for one in found if isinstance(one, pytest.TestReport)]
    if cache := getattr(config, "cache", None):
        cache.set("durations", phases)
    seconds: dict[str, float] = {}
    for test, _, duration in phases:
        name = test.partition("::")[0]
        seconds[name] = seconds.get(name, 0) + duration
    terminalreporter.section("seconds of the longest files")
    for name, total in sorted(seconds.items(), key=lambda item: item[1], reverse=True)[:LONGEST_FILES]:
        terminalreporter.write_line(f"{total:8.1f}  {name}")


@pytest.fixture(autouse=True)
def _no_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LEAKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command inside an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> CommandResult:
        return run_command(capsys, *arguments)

    return run


@pytest.fixture(scope="session")
def cache() -> Path:
    """Downloads and environments, kept between runs as the command keeps them."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "wheelfactory"


@pytest.fixture(scope="session")
def rocm(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a machine with "ROCm 7.2.1" and "torch 2.13.0+rocm7.2" for the Python that runs this."""
    made = make_rocm(cache, tmp_path_factory.mktemp("rocm"), tmp_path_factory.mktemp("python") / "venv")
    return install_build_tools(made)


@pytest.fixture(scope="session")
def small_rocm(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of such a machine for `small_release`, whose setup.py does not import torch."""
    folders = (tmp_path_factory.mktemp("rocm"), tmp_path_factory.mktemp("python") / "venv")
    return install_build_tools(make_rocm(cache, *folders, real_torch=False))


@pytest.fixture(scope="session")
def kernel_archives(rocm: Mapping[str, str], cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with archives of all `KERNEL_SETS`, compiled by hipcc's stand-in.

    The machine compiled them for a cell, which it published in ``release`` beside the folder; `FIRST_CELL_LOG` is the
    log of its hipcc.
    """

    def compile_sets(folder: Path) -> None:
        own = make_machine(folder / "machine", cache, rocm)
        (folder / "archives").mkdir()
        done = own.run("run", "--only", CELL.id, "--dest", folder / "release", PYTORCH_ROCM_ARCH="gfx942")
        assert done.returncode == 0, done.stderr
        (Path(rocm["ROCM_PATH"]) / "hipcc.log").rename(folder / "archives" / FIRST_CELL_LOG)
        pack_kernels(own, folder / "archives")

    return make_once(tmp_path_factory.getbasetemp(), "kernels", compile_sets) / "archives"


@pytest.fixture(scope="session")
def few_archs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The matrix of `few_archs`."""
    return write_few_archs(tmp_path_factory.mktemp("matrix") / "matrix.yaml")


@pytest.fixture(scope="session")
def triton_wheel(cache: Path, few_archs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Triton wheel of flash-attn 2.8.3 as this factory makes it."""
    given = Context(load_matrix(few_archs), Host(cores=2, memory_gib=6), {"PATH": os.environ["PATH"]}, cache)
    cell = Cell.parse("fa2.8.3-rocm7.2-torch2.13.0-py3-triton")

    def build(folder: Path) -> None:
        build_cell(local_executor(given), cell, folder, ignore_progress, context=given)

    return next(make_once(tmp_path_factory.getbasetemp(), "upstream", build).glob("*.whl"))


@pytest.fixture(scope="session")
def triton_cache(cache: Path) -> Path:
    """A folder for kernels that Triton compiles, half of the time of a test that executes them; kept between runs."""
    return cache / "triton"


@pytest.fixture(scope="session")
def proved(cache: Path, few_archs: Path, triton_wheel: Path, triton_cache: Path) -> Path:
    """The cache with what the slow gates showed of that wheel: a minute where they showed nothing yet, else seconds.

    With it, all labels of that wheel for this Triton and `few_archs` are verified in seconds.
    """
    matrix, environ = load_matrix(few_archs), dict(os.environ)
    with file_lock(cache, "proofs"), pytest.MonkeyPatch.context() as patch:
        share_triton_cache(triton_cache, patch)
        results = verify(triton_wheel, context=Context(matrix, read_host(environ), environ, cache))
    assert not is_refused(results), results
    return cache


@pytest.fixture(scope="session")
def upstream(triton_wheel: Path) -> Mapping[str, bytes]:
    """The members of that wheel, outside of dist-info."""
    return {name: data for name, data in read_zip(triton_wheel).items() if ".dist-info/" not in name}


@pytest.fixture(scope="session")
def skip() -> Callable[[str], NoReturn]:
    """Skips the test for a reason that lies in this machine, or fails it if HIP_TOOLCHAIN says that all must run."""
    required = os.environ.get("HIP_TOOLCHAIN") == "required"

    def skip_or_fail(reason: str) -> NoReturn:
        if required:
            pytest.fail(reason)
        pytest.skip(reason)

    return skip_or_fail


@pytest.fixture(scope="session")
def hip(cache: Path, skip: Callable[[str], NoReturn]) -> HipToolchain:
    """A HIP compiler, the same for all; without one its tests are skipped."""
    reason = find_missing_requirement()
    if reason:
        skip(f"no HIP toolchain: {reason}")
    return make_hip_toolchain(cache)


@pytest.fixture
def this_python() -> str:
    """The version of the Python that runs the tests, as cells name it."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
