"""`wheelfactory build --executor docker` as a person runs it: interrupted, killed, run again, and failing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from container_project import cell_of, labelled, put_sources, wait_until
from rocm_machine import LEAKS
from wheelfactory.build.engine import Engine

pytestmark = pytest.mark.slow

SLOW, BROKEN = cell_of("9.9.1"), cell_of("9.9.2")

MOST_SECONDS = 60
"""In which nothing of a run is left after its end, on a machine that has other work."""


@dataclass(frozen=True)
class Bench:
    """A machine with an engine, an own cache, and the image of the cells already made."""

    engine: Engine
    matrix: Path
    cache: Path
    dest: Path

    def command(self, cell: str, *arguments: str) -> list[str]:
        folders = ["--matrix", str(self.matrix), "--cache", str(self.cache), "--dest", str(self.dest)]
        return [sys.executable, "-m", "wheelfactory", "build", cell, "--executor", "docker", *folders, *arguments]

    @property
    def environ(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name not in LEAKS}
        return {**own, "DOCKER_HOST": self.engine.url}

    def run(self, cell: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(cell, *arguments), env=self.environ, capture_output=True, text=True)

    def started(self, cell: str) -> subprocess.Popen[str]:
        """The command, with setup.py at work in a container."""
        log, pipe = self.cache / "logs" / f"{cell}.log", subprocess.PIPE
        log.unlink(missing_ok=True)  # of an earlier call
        process = subprocess.Popen(
            self.command(cell),
            env=self.environ,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
            # what was started in the background may ignore SIGINT, and its children inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        wait_until(lambda: process.poll() is not None or (log.exists() and "second 0" in log.read_text()))
        assert process.poll() is None, process.communicate()
        assert self.containers()
        return process

    def containers(self) -> list[str]:
        """The containers of runs with this cache."""
        return [found for found, folder in labelled(self.engine) if folder.is_relative_to(self.cache)]

    def scratch(self) -> list[Path]:
        return [path for folder in (self.cache, self.dest) for path in folder.rglob(".scratch-*")]


@pytest.fixture
def bench(engine: Engine, cell_image: str, matrix_file: Path, tmp_path: Path) -> Iterator[Bench]:
    machine = Bench(engine, matrix_file, tmp_path / "cache", tmp_path / "dist")
    put_sources(machine.cache)
    yield machine
    wait_until(lambda: not machine.containers() and not machine.scratch(), MOST_SECONDS)


def interrupted(code: int, errors: str) -> None:
    assert code == 1
    assert "error: interrupted: by Ctrl-C\nhint: run the same command again to continue\n" in errors
    assert "Traceback" not in errors


def killed(code: int, _said: str) -> None:
    assert code == -signal.SIGKILL


def test_ended_by_a_signal_it_leaves_nothing_and_the_same_command_again_gives_the_wheel(bench: Bench) -> None:
    for number, check in ((signal.SIGINT, interrupted), (signal.SIGKILL, killed)):
        process = bench.started(SLOW.id)
        os.killpg(process.pid, number)  # as a terminal does, to all that was started in it
        printed, errors = process.communicate(timeout=MOST_SECONDS)
        check(process.returncode, errors)
        assert printed == ""
        wait_until(lambda: not bench.containers() and not bench.scratch(), MOST_SECONDS)
        assert not list(bench.dest.glob("*.whl"))
    done = bench.run(SLOW.id)
    assert done.returncode == 0, done.stderr
    wheel = bench.dest / "flash_attn-9.9.1+rocm72torch2.13triton-1-py3-none-any.whl"
    assert done.stdout == f"{wheel}\n" and wheel.is_file()


def test_the_next_run_removes_containers_of_a_run_killed_with_its_watcher(bench: Bench) -> None:
    process = bench.started(SLOW.id)
    (reaper,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(reaper), signal.SIGKILL)
    process.kill()
    process.communicate()
    (orphan,) = bench.containers()
    assert bench.run(BROKEN.id).returncode == 4
    assert orphan not in bench.containers()
