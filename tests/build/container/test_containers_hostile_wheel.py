"""Code of a wheel, which gates run in a container: what it tries to reach is not there, and the row stays the same."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from wheel_factory import PACKAGE, TRITON, build_record, make_wheel, small_machine
from wheelfactory.build import container
from wheelfactory.build.container_executor import open_containers
from wheelfactory.build.engine import Engine
from wheelfactory.build.environments import (
    make_empty_environment,
    make_numpy_environment,
)
from wheelfactory.build.executor import HERE, GateRunner, WheelProgram
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import ROOT
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Context
from wheelfactory.verify.emulation import EXECUTE, EmulationReport
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.importing import check_import
from wheelfactory.verify.programs.attention_cases import FIRST
from wheelfactory.verify.proofs import device_environ, install_and_run, stand_in_base
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.rewrite import finish_wheel

pytestmark = pytest.mark.slow

TOKEN = "ghs_of-the-runner"  # noqa: S105 - of nobody

# each attempt leaves nothing behind where it succeeds
HOSTILE = """
import importlib.util, os, pathlib, socket, subprocess, sys
reached = []

def attempt(what, try_it):
    try:
        if try_it():
            reached.append(what)
    except Exception:
        pass

def can_write(beside):
    planted = pathlib.Path(beside).resolve(strict=True).with_name("planted.py")
    planted.write_text("raise SystemExit")
    planted.unlink()
    return True

def can_connect(family, address):
    with socket.socket(family) as tried:
        tried.settimeout(5)
        return not tried.connect_ex(address)

def can_be_root():
    os.setuid(0)
    return True

def state(name):
    return pathlib.Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0]

attempt("environment", lambda: any({token!r} in value for value in os.environ.values()))
for process in pathlib.Path("/proc").glob("[0-9]*"):
    attempt("processes", lambda: {token!r}.encode() in (process / "environ").read_bytes())
attempt("engine", lambda: can_connect(socket.AF_UNIX, {engine!r}))
attempt("network", lambda: can_connect(socket.AF_INET, ("127.0.0.1", {port})))
attempt("root", can_be_root)
attempt("sudo", lambda: state("NoNewPrivs") == "0")
attempt("capabilities", lambda: int(state("CapEff"), 16))
for place, beside in {places!r}.items():
    attempt(place, lambda: can_write(beside))
attempt("environments", lambda: can_write(importlib.util.find_spec("torch").origin))
attempt("installed wheel", lambda: can_write(__file__))
pathlib.Path(os.environ["HOME"], "own").touch()
if reached:
    raise ImportError(", ".join(dict.fromkeys(reached)))
"""

EVERYTHING = (
    "environment, processes, engine, network, root, sudo, capabilities, rows, checkout, factory, Python, "
    "environments, installed wheel"
)


@pytest.fixture
def hostile(engine: Engine, tmp_path: Path) -> Iterator[Path]:
    """A Triton wheel that does not import if its code reaches anything, beside a process with the runner's token."""
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "manifest.jsonl").touch()
    places = {
        "rows": rows / "manifest.jsonl",
        "checkout": ROOT / "matrix.yaml",
        "factory": ROOT / "src/wheelfactory/__init__.py",
        "Python": sys.base_prefix + "/bin/python3",
    }
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(["sleep", "1000"], env={"RUNNER_TOKEN": TOKEN}) as runner,
    ):
        init = HOSTILE.format(
            token=TOKEN,
            engine=engine.url.removeprefix("unix://"),
            port=server.getsockname()[1],
            places={place: str(beside) for place, beside in places.items()},
        )
        members = {**PACKAGE, "flash_attn/__init__.py": init.encode()}
        yield finish_wheel(make_wheel(tmp_path / "raw", members=members), build_record(TRITON), tmp_path)
        runner.kill()


@pytest.fixture
def given(cache: Path) -> Context:
    context = small_machine(cache, {**os.environ, "GITHUB_TOKEN": TOKEN})
    return replace(context, host=Host(cores=2, memory_gib=4))


@pytest.fixture
def contained(engine: Engine, given: Context) -> Iterator[GateRunner]:
    with open_containers(engine, context=given) as executor:
        yield executor


def subject_of(wheel: Path, given: Context, runner: GateRunner) -> Subject:
    return Subject(Wheel.open(wheel), given, runner, record=build_record(TRITON), cell=TRITON)


def import_gate(wheel: Path, given: Context, runner: GateRunner) -> GateResult:
    return check_import(subject_of(wheel, given, runner))


def test_in_a_container_it_reaches_nothing_and_its_row_is_that_of_an_honest_wheel(
    hostile: Path, given: Context, contained: GateRunner, tmp_path: Path
) -> None:
    honest = finish_wheel(
        make_wheel(tmp_path / "honest-raw", members=PACKAGE), build_record(TRITON), tmp_path / "honest"
    )
    result = import_gate(hostile, given, contained)
    assert result.findings == ()
    assert result == import_gate(honest, given, HERE)
    assert result.status is Status.PASSED


def test_on_this_machine_each_attempt_succeeds(hostile: Path, given: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the attempts are real ones. A variable of the runner reaches no program of a gate even here."""
    monkeypatch.setattr("wheelfactory.verify.proofs._PASSED_ON", ("GITHUB_",))
    (finding,) = import_gate(hostile, given, HERE).findings
    assert finding.found == f"ImportError: {EVERYTHING}"


@pytest.mark.parametrize(
    ("hole", "reached"),
    [
        ({"environment": {"RUNNER_TOKEN": TOKEN, "HOME": "/tmp"}}, "environment, processes"),  # noqa: S108 - of the container
        ({"volumes": ["the socket"], "user": "0:0"}, "engine, root"),
        ({"network_mode": "host"}, "network"),
        ({"read_only": False, "user": "0:0", "cap_add": ["SETUID"], "cap_drop": []}, "root, capabilities"),
        ({"security_opt": []}, "sudo"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_hole_in_the_container_is_seen(
    hostile: Path,
    given: Context,
    contained: GateRunner,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    hole: Mapping[str, object],
    reached: str,
) -> None:
    closed, socket_path = container.container_options, engine.url.removeprefix("unix://")
    if "volumes" in hole:
        hole = {**hole, "volumes": [f"{socket_path}:{socket_path}"]}
    monkeypatch.setattr(container, "container_options", lambda *given: {**closed(*given), **hole})
    (finding,) = import_gate(hostile, given, contained).findings
    assert finding.found == f"ImportError: {reached}"


def run_text(runner: GateRunner, folder: Path, text: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    python = make_empty_environment(folder / "env")
    (folder / "env/home").mkdir()
    program = (str(python.python), "-I", "-c", text)
    return runner.run_wheel(WheelProgram(program, {}, python.reads, folder / "env/home", timeout))


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("print('{}'); import sys; print('at: 1', file=sys.stderr)", (0, "{}\n", "at: 1\n")),
        ("raise SystemExit(3)", (3, "", "")),
        ("import os; os.kill(os.fork() or os.getpid(), 9); print(os.wait()[1])", (0, "9\n", "")),
        ("import ctypes; ctypes.string_at(0)", (-11, "", "")),
    ],
    ids=["both outputs", "status", "a killed child", "a crash"],
)
def test_a_program_ends_there_as_it_does_here(
    contained: GateRunner, tmp_path: Path, text: str, ends: tuple[int, str, str]
) -> None:
    done = run_text(contained, tmp_path, text)
    assert (done.returncode, done.stdout, done.stderr) == ends


def test_a_program_that_does_not_end_is_killed(contained: GateRunner, tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_text(contained, tmp_path, "import time; time.sleep(1000)", timeout=2)


def test_of_endless_output_only_the_beginning_is_kept(
    contained: GateRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_MAX_OUTPUT", 1 << 20)
    done = run_text(contained, tmp_path, "for _ in range(10_000): print('x' * 4096)")
    assert done.returncode == 0
    assert 1 << 20 <= len(done.stdout) < 2 << 20


def test_an_engine_that_does_not_know_a_folder_is_an_error(contained: GateRunner, tmp_path: Path) -> None:
    program = WheelProgram(("/usr/bin/true",), {}, (tmp_path / "elsewhere",), tmp_path, 60)
    with pytest.raises(BuildError, match="refused"):
        contained.run_wheel(program)


def test_machine_code_computes_the_same_numbers_there(
    triton_wheel: Path, cache: Path, given: Context, contained: GateRunner
) -> None:
    command: tuple[str | Path, ...] = (
        EXECUTE,
        "gfx942",
        "first",
        *(f"!{case.name} *" for case in FIRST[1:] if case.name != FIRST[0].name),
    )

    def report(runner: GateRunner) -> EmulationReport | str:
        subject = subject_of(triton_wheel, given, runner)
        base = stand_in_base(subject, make_numpy_environment(cache))
        return install_and_run(subject, command, EmulationReport, base, device_environ(os.environ), 600)

    here = report(HERE)
    assert isinstance(here, EmulationReport)
    assert here.cases and here.kernels
    there = report(contained)
    assert isinstance(there, EmulationReport), there
    assert there.model_copy(update={"file": here.file}) == here
