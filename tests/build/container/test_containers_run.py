"""`wheelfactory run --executor docker`: several cells at once, each with its share; interrupted, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from docker.errors import NotFound

from container_project import cell_of, labelled, put_sources, wait_until
from rocm_machine import make_machine
from wheelfactory.build.engine import Engine

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cell_image")]

BOTH = "fa9.9.[34]-rocm7.2-torch2.13.0-*-triton"
"""Two releases whose setup.py takes minutes."""


def started(engine: Engine, folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """The command with a cache and a release in a folder."""
    places = ["--cache", str(folder / "cache"), "--dest", str(folder / "wheelhouse")]
    command = [sys.executable, "-m", "wheelfactory", "run", "--executor", "docker", *places, *map(str, arguments)]
    environ = {**os.environ, "DOCKER_HOST": engine.url}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def memory_of_containers(engine: Engine, cache: Path) -> list[int]:
    """What each container of runs with this cache may use, in bytes."""
    found = []
    for container, folder in labelled(engine):
        if folder.is_relative_to(cache):
            with suppress(NotFound):  # it has just ended
                found.append(int(engine.client.api.inspect_container(container)["HostConfig"]["Memory"]))
    return found


def test_two_cells_are_built_at_once_with_half_of_the_memory_each_and_an_interrupt_removes_both_containers(
    engine: Engine, matrix_file: Path, cache: Path, tmp_path: Path
) -> None:
    own = make_machine(tmp_path / "cache", cache, {}).cache
    (own / "sources").unlink()  # these must not get into the shared one
    put_sources(own)
    process = started(engine, tmp_path, "--only", BOTH, "--memory", "8", "--matrix", matrix_file)
    logs = [own / "logs" / f"{cell_of(version).id}.log" for version in ("9.9.3", "9.9.4")]
    wait_until(
        lambda: process.poll() is not None or all(log.exists() and "second 0" in log.read_text() for log in logs)
    )
    memory = memory_of_containers(engine, own)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert memory == [4 << 30] * 2, errors
    assert process.returncode == 1, errors
    assert "error: interrupted: by SIGTERM" in errors
    assert "Traceback" not in errors
    assert not memory_of_containers(engine, own)
    assert not list(tmp_path.rglob(".scratch-*"))
