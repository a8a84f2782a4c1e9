"""The container engine that tests use leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from container_engine import engine, find_missing_requirement, skip_unless

pytestmark = pytest.mark.slow

HOLD = """
import sys
import time
from pathlib import Path
from docker import DockerClient
from container_engine import engine
with engine(Path(sys.argv[1])) as held:
    DockerClient(base_url=held.url).ping()
    print(held.process, flush=True)
    time.sleep(600)
"""
"""A test run that has an engine, and is killed."""


def family(process: int) -> dict[int, str]:
    """A process and all its descendants, including those in containers, with their names."""
    found = {}
    with contextlib.suppress(OSError):  # one may end meanwhile
        found[process] = Path(f"/proc/{process}/comm").read_text().strip()
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in children.read_text().split():
                found |= family(int(child))
    return found


def alive(processes: dict[int, str]) -> list[str]:
    """The names of the processes that still run."""
    found = []
    for process, name in processes.items():
        with contextlib.suppress(OSError):  # it has ended
            found += [name] * (Path(f"/proc/{process}/comm").read_text().strip() == name)
    return found


def loop_devices() -> str:
    """The files that this machine's loop devices show."""
    return "".join(path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file"))


def test_nothing_of_an_engine_runs_when_the_tests_are_killed_and_the_next_one_removes_its_files(tmp_path: Path) -> None:
    skip_unless(find_missing_requirement())
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout
        processes = family(int(tests.stdout.readline()))
        tests.kill()
    deadline = time.monotonic() + 300
    while (alive(processes) or str(tmp_path) in loop_devices()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(processes) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text() + loop_devices()
    with engine(tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
