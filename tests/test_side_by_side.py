"""Two processes that run tests: who runs which, in what order; and how one waits for what another makes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from turns import made_once

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
"""A test that notes who runs it."""

HOLD = """
import sys
import time
from pathlib import Path
from turns import in_turn
with in_turn(Path(sys.argv[1]), sys.argv[2]):
    print("has it", flush=True)
    time.sleep(60)
"""


def write_test(root: Path, name: str, *, slow: bool = False, count: int = 1, seconds: float = 0) -> None:
    path = root / "tests" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = "slow" if slow else "fast"
    path.write_text(TEST.format(mark=mark, count=count, log=str(root / "log"), name=name, seconds=seconds))


def run_tests(root: Path, *arguments: str) -> list[tuple[str, str]]:
    """What ran, in order: the process, and the name of the file."""
    (root / "pytest.ini").write_text("[pytest]\nnorecursedirs = .*\nmarkers =\n    slow: slow\n    fast: fast\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", *arguments]
    environ = {**os.environ, "PYTHONPATH": str(HERE)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        environ.pop(name, None)
    done = subprocess.run([*command, f"--basetemp={root}/temp"], cwd=root, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    words = [line.split() for line in (root / "log").read_text().splitlines()]
    return [(process, name) for process, name, _ in words]


def test_those_with_containers_share_a_process_and_the_slow_ones_are_started_first(tmp_path: Path) -> None:
    order = {"build/container/test_b": 0, "build/container/test_c": 0, "kernels/test_kernels_full_size": 1}
    order |= {"compile/test_a": 2, "test_e": 2, "matrix/test_d": 3}
    for name, rank in order.items():
        write_test(tmp_path, name, slow=rank in (1, 2), count={0: 3, 3: 9}.get(rank, 1), seconds=0 if rank else 0.2)
    ran = run_tests(tmp_path, "-n2")
    assert len(ran) == 18
    assert len({process for process, name in ran if order[name] == 0}) == 1
    for process in ("gw0", "gw1"):
        ranks = [order[name] for by, name in ran if by == process]
        assert ranks == sorted(ranks) != []


def test_without_xdist_the_order_is_kept(tmp_path: Path) -> None:
    write_test(tmp_path, "test_a")
    write_test(tmp_path, "test_b", slow=True)
    assert run_tests(tmp_path, "-p", "no:xdist") == [("None", "test_a"), ("None", "test_b")]


def test_what_one_process_has_made_the_other_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    made = made_once(tmp_path / "gw0", "made", lambda folder: (folder / "content").write_text("one"))
    assert made_once(tmp_path / "gw1", "made", lambda folder: pytest.fail("made again")) == made
    assert (made / "content").read_text() == "one"


def test_what_could_not_be_made_leaves_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    with pytest.raises(FileExistsError):
        made_once(tmp_path, "made", Path.mkdir)
    made = made_once(tmp_path, "made", lambda folder: (folder / "content").write_text("two"))
    assert (made / "content").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "turns"]


def test_a_turn_is_waited_for_until_whoever_has_it_has_ended(tmp_path: Path) -> None:
    with turn(tmp_path, "made") as (one, said_one), turn(tmp_path, "made") as (two, said_two):
        (early,) = select.select([said_one, said_two], [], [], 30)[0]
        late, has_it = (said_two, one) if early is said_one else (said_one, two)
        with turn(tmp_path, "another") as (_, said_other):
            assert select.select([late, said_other], [], [], 30)[0] == [said_other]
        has_it.kill()
        assert select.select([late], [], [], 30)[0] == [late]


@contextmanager
def turn(folder: Path, name: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A process that keeps its turn once it has it, and where it says that it does."""
    command = [sys.executable, "-c", HOLD, str(folder), name]
    environ = {**os.environ, "PYTHONPATH": str(HERE)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            yield process, process.stdout
        finally:
            process.kill()
