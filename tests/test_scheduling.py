"""Tests in two processes: distribution, order, and waiting for shared fixtures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared_folder import make_once

pytest.importorskip("xdist")

HERE = Path(__file__).parent

TEST = """\
import os
import time
from pathlib import Path

import pytest


@pytest.mark.{mark}
@pytest.mark.parametrize("number", range({count}))
def test(number):
    with Path({log!r}).open("a") as file:
        file.write(f"{{os.environ.get('PYTEST_XDIST_WORKER')}} {name} {{number}}\\n")
    time.sleep({seconds})
"""
"""A test that records its process."""


def write_test(root: Path, name: str, *, slow: bool = False, count: int = 1, seconds: float = 0) -> None:
    path = root / "tests" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = "slow" if slow else "fast"
    path.write_text(TEST.format(mark=mark, count=count, log=str(root / "log"), name=name, seconds=seconds))


def run_tests(root: Path, *arguments: str) -> list[tuple[str, str]]:
    """Run tests and return the process and file name of each, in order."""
    (root / "pytest.ini").write_text("[pytest]\nnorecursedirs = .*\nmarkers =\n    slow: slow\n    fast: fast\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", *arguments]
    environ = {**os.environ, "PYTHONPATH": str(HERE)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        environ.pop(name, None)
    done = subprocess.run([*command, f"--basetemp={root}/temp"], cwd=root, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    words = [line.split() for line in (root / "log").read_text().splitlines()]
    return [(process, name) for process, name, _ in words]


@pytest.mark.slow
def test_container_tests_share_a_process_slow_files_start_first_and_the_seconds_of_every_phase_are_kept(
    tmp_path: Path,
) -> None:
    order = {"build/container/test_b": 0, "build/container/test_c": 0, "kernels/test_kernels_full_size": 1}
    order |= {"compile/test_a": 2, "test_e": 2, "matrix/test_d": 3}
    for name, rank in order.items():
        write_test(tmp_path, name, slow=rank in (1, 2), count={0: 3, 3: 9}.get(rank, 1), seconds=0 if rank else 0.2)
    ran = run_tests(tmp_path, "-n2", "-p", "cacheprovider")
    assert len(ran) == 18
    assert len({process for process, name in ran if order[name] == 0}) == 1
    for process in ("gw0", "gw1"):
        ranks = [order[name] for by, name in ran if by == process]
        assert ranks == sorted(ranks) != []
    phases = json.loads((tmp_path / ".pytest_cache/v/durations").read_text())
    called = [(test, seconds) for test, phase, seconds in phases if phase == "call"]
    assert (len(phases), len(called)) == (3 * len(ran), len(ran))
    assert min(seconds for test, seconds in called if "/container/" in test) >= 0.2


@pytest.mark.slow
def test_without_xdist_the_order_is_unchanged(tmp_path: Path) -> None:
    write_test(tmp_path, "test_a")
    write_test(tmp_path, "test_b", slow=True)
    assert run_tests(tmp_path, "-p", "no:xdist") == [("None", "test_a"), ("None", "test_b")]


def test_a_shared_folder_is_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    made = make_once(tmp_path / "gw0", "made", lambda folder: (folder / "content").write_text("one"))
    assert make_once(tmp_path / "gw1", "made", lambda folder: pytest.fail("made again")) == made
    assert (made / "content").read_text() == "one"


def test_a_failed_creation_leaves_nothing_and_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    with pytest.raises(FileExistsError):
        make_once(tmp_path, "made", Path.mkdir)
    made = make_once(tmp_path, "made", lambda folder: (folder / "content").write_text("two"))
    assert (made / "content").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["locks", "made"]
