"""The number of parallel compiles, and retries after a kill for lack of memory."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from wheelfactory.core import host
from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.schedule import (
    Compile,
    EndedCompile,
    estimate_time_left,
    format_duration,
    jobs_after_kill,
    render_status_line,
    run_compiles,
)

KILLED_ONCE = "[ -e killed ] || { touch killed; kill -KILL $$; }"

CompileAll = Callable[..., list[EndedCompile]]


@pytest.fixture
def compile_all(tmp_path: Path) -> CompileAll:
    """Runs shell scripts as compiles, in a folder of the test."""

    def run(
        scripts: Sequence[str], jobs: int, *, left_out: Sequence[str] = (), keep_going: bool = False
    ) -> list[EndedCompile]:
        compiles = [script_compile(tmp_path, str(number), script) for number, script in enumerate(scripts)]
        return list(run_compiles(compiles, jobs, lambda one: one.name not in left_out, keep_going=keep_going))

    return run


def script_compile(folder: Path, name: str, script: str) -> Compile:
    argv, environ = ["sh", "-c", script], {"PATH": os.environ["PATH"]}
    return Compile(name, name, ("gfx942",), folder / f"{name}.o", argv, str(folder), environ, predicted_s=1)


def most_at_once(ended: Sequence[EndedCompile]) -> int:
    return max(sum(other.start <= one.start < other.end for other in ended) for one in ended)


@pytest.mark.parametrize("jobs", [1, 3])
def test_as_many_run_at_once_as_are_allowed(jobs: int, compile_all: CompileAll) -> None:
    ended = compile_all(["sleep 0.1"] * (2 * jobs + 1), jobs)
    assert len(ended) == 2 * jobs + 1
    assert most_at_once(ended) == jobs


def test_an_ended_compile_has_output_cost_and_status(compile_all: CompileAll) -> None:
    before = time.monotonic()
    work = "head -c 20000000 /dev/zero | sha256sum > /dev/null"
    (ended,) = compile_all([f"echo out; echo err >&2; cat; {work}; exit 3"], 1)
    assert (ended.compile.name, ended.code, ended.output) == ("0", 3, "out\nerr\n")
    assert ended.cpu_s > 0
    assert ended.peak_mib > 0
    assert before < ended.start < ended.end < time.monotonic()


def test_after_a_failure_running_compiles_end_and_no_more_start(compile_all: CompileAll) -> None:
    ended = compile_all(["exit 3", "sleep 0.2", "touch third"], 2)
    assert {one.compile.name: one.code for one in ended} == {"0": 3, "1": 0}


def test_if_asked_to_keep_going_a_failure_stops_nothing_and_a_skipped_compile_is_replaced_by_the_next(
    compile_all: CompileAll,
) -> None:
    ended = compile_all(["exit 3", "true", "exit 4", "true"], 1, keep_going=True, left_out=["1"])
    assert [(one.compile.name, one.code) for one in ended] == [("0", 3), ("2", 4), ("3", 0)]


def test_other_child_processes_are_ignored(compile_all: CompileAll) -> None:
    other = subprocess.Popen(["true"])
    (ended,) = compile_all(["sleep 0.2"], 1)
    assert (ended.compile.name, ended.code) == ("0", 0)
    other.wait()


@pytest.mark.parametrize(("jobs", "started_with", "then"), [(16, 16, 8), (8, 16, 8), (8, 8, 4), (1, 16, 1), (1, 1, 1)])
def test_after_a_kill_half_as_many_run_as_when_it_started(jobs: int, started_with: int, then: int) -> None:
    assert jobs_after_kill(jobs, started_with) == then


def test_a_killed_compile_is_retried(compile_all: CompileAll, capsys: pytest.CaptureFixture[str]) -> None:
    ended = compile_all([KILLED_ONCE, *["sleep 0.1"] * 8], 4)
    assert sorted(one.compile.name for one in ended) == list("012345678")
    assert {one.code for one in ended} == {0}
    assert (
        "wheelfactory: 0 was killed for lack of memory: retrying it, with at most 2 compiles at once"
        in capsys.readouterr().out
    )
    assert most_at_once(sorted(ended, key=lambda one: one.start)[3:]) == 2


def test_a_driver_whose_compiler_was_killed_is_recognized_by_the_kernels_count(
    compile_all: CompileAll, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "out_of_memory_kills", lambda: int((tmp_path / "killed").exists()))
    (ended,) = compile_all(["[ -e killed ] || { touch killed; exit 1; }"], 4)
    assert ended.code == 0


def test_kills_of_other_programs_on_the_machine_do_not_turn_an_error_into_a_lack_of_memory(
    compile_all: CompileAll, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "out_of_memory_kills", itertools.count().__next__)
    (ended,) = compile_all(["echo >> tries; echo no such header >&2; exit 1"], 4)
    assert (ended.code, ended.output) == (1, "no such header\n")
    assert len((tmp_path / "tries").read_text()) == 3, "it is retried, as if it had been killed"


@pytest.mark.parametrize("killed", ["kill -KILL $$", "echo clang: unable to execute command: Killed; exit 1"])
def test_a_compile_killed_while_alone_ends_the_build_with_its_name(
    tmp_path: Path, compile_all: CompileAll, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "out_of_memory_kills", itertools.count().__next__)
    with pytest.raises(BuildError, match="out of memory for one compile alone: 0, killed at") as caught:
        compile_all([f"echo >> tries; {killed}"], 4)
    assert "--memory" in caught.value.hint
    assert len((tmp_path / "tries").read_text()) == 3, "with 4 jobs, with 2, and alone"


def test_closing_the_iterator_kills_all_compiles(tmp_path: Path) -> None:
    scripts = {"0": "true", "1": "echo $$ > process; exec sleep 100"}
    waiting = [script_compile(tmp_path, name, script) for name, script in scripts.items()]
    with closing(run_compiles(waiting, 2, lambda _: True)) as compiles:
        assert next(compiles).compile.name == "0"
        while not (tmp_path / "process").exists() or not (tmp_path / "process").read_text():
            time.sleep(0.01)
    process = int((tmp_path / "process").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_status_line_shows_rate_time_left_and_memory() -> None:
    assert estimate_time_left(8000.0, 4000.0, elapsed_s=600.0, jobs=4) == 1200.0, "at the speed so far"
    assert estimate_time_left(8000.0, 0.0, elapsed_s=600.0, jobs=4) == 2000.0
    line = render_status_line("fmha_x", 300, 2525, elapsed_s=600.0, left_s=1200.0, peak_mib=1204)
    assert line == "[300/2525] 30.0/min, 20 min left, peak 1204 MiB: fmha_x"
    assert [format_duration(seconds) for seconds in (0.4, 99, 4521, 7500)] == ["0 s", "99 s", "75 min", "2 h 05 min"]
