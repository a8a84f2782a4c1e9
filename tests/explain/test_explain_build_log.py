"""The facts read from a log: state, progress, jobs, the relevant command."""

from __future__ import annotations

import pytest

from explain.build_logs import KERNEL_283, PREAMBLE, command, compiles, failed, read, running
from wheelfactory.core.errors import InputError
from wheelfactory.explain.build_log import COMMAND, FINISHED, PREPARING, RUNNING


def test_a_log_that_ends_within_a_line_is_read_up_to_there() -> None:
    whole = running(111)
    reading = read(whole[: len(whole) - 900])
    assert reading.progress
    assert reading.progress.done == 111
    assert reading.command
    assert reading.command.archs == ("gfx942",)


@pytest.mark.parametrize(
    "end",
    [
        "Successfully built flash-attn",
        "creating '/w/dist/flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl' and adding 'build/bdist' to it",
        "Finished processing dependencies for flash-attn==2.8.3",
        "/w/dist/flash_attn-2.8.3+rocm72torch2.9-cp312-cp312-manylinux_2_35_x86_64.whl",
    ],
    ids=["pip", "bdist_wheel", "install", "this program"],
)
def test_a_build_that_made_its_wheel_is_finished(end: str) -> None:
    assert read(f"{running(3, 3)}{end}\n").state == FINISHED


def test_the_last_word_counts_where_a_failed_build_was_started_again() -> None:
    again = (
        failed("clang++: error: unable to execute command: Killed") + running(3, 3) + "Successfully built flash-attn"
    )
    reading = read(again)
    assert (reading.state, reading.cause) == (FINISHED, None)


def test_a_build_that_was_started_again_and_compiles_is_not_failed() -> None:
    missing = "ModuleNotFoundError: No module named 'torch'\nerror: subprocess-exited-with-error\n"
    again = read(missing + failed("clang++: error: unable to execute command: Killed") + running(3))
    assert (again.state, again.cause, again.failed_objects) == (RUNNING, None, 0)


def test_a_build_after_one_that_made_its_wheel_is_not_finished() -> None:
    assert read(f"{running(3, 3)}Successfully built flash-attn\n{running(5, 2782)}").state == RUNNING


@pytest.mark.parametrize("counts", ["0/0", "5/3", "1/99999999999"])
def test_counts_that_cannot_be_are_no_progress(counts: str) -> None:
    assert read(f"[{counts}] {command()}").progress is None


def test_a_line_that_is_told_again_counts_once() -> None:
    once = "\n".join(compiles(1, first=44))
    assert read(f"{once}\n{once}\n{once}").progress == read(once).progress


@pytest.mark.parametrize(
    ("line", "archs"),
    [
        ('export GPU_ARCHS="gfx90a;gfx942"', ("gfx90a", "gfx942")),
        ("  GPU_ARCHS: gfx942", ("gfx942",)),
        ("hint: GPU_ARCHS=gfx942 is one, say", ()),
        ("GPU_ARCHS=native", ()),
    ],
    ids=["shell", "step of a CI job", "hint", "native"],
)
def test_the_archs_are_read_where_they_are_set(line: str, archs: tuple[str, ...]) -> None:
    assert read(f"{PREAMBLE}{line}\n").archs == archs


def test_what_another_project_compiles_is_no_progress_of_this_one() -> None:
    other = "[7/9] /usr/bin/c++ -c /w/other/a.cpp -o a.o"
    progress = read(f"{running(3)}{other}\n").progress
    assert progress
    assert (progress.done, progress.total, progress.runs) == (3, 2525, 1)
    assert read(other).state == COMMAND


def test_compiles_at_once_in_one_log_are_said_to_be_mixed_and_hide_no_cause() -> None:
    builds = zip(compiles(9, total=2525, first=20), compiles(9, total=1387, first=5), strict=True)
    lines = [line for pair in builds for line in pair]
    lines.insert(12, "clang++: error: unable to execute command: Killed")
    reading = read("\n".join(lines))
    assert reading.progress
    assert reading.progress.mixed
    assert reading.cause
    assert reading.cause.name == "out of memory"


def test_one_compile_after_another_is_not_mixed() -> None:
    parts = [line for total in (7, 8, 9, 10, 11) for line in compiles(3, total=total)]
    progress = read("\n".join(parts)).progress
    assert progress
    assert (progress.runs, progress.mixed) == (5, False)


def test_a_build_before_its_compiles_is_preparing() -> None:
    assert read(PREAMBLE).state == PREPARING


def test_without_ninja_the_commands_are_all_there_is() -> None:
    warning = "UserWarning: Attempted to use ninja as the BuildExtension backend but we could not find ninja."
    reading = read(f"{PREAMBLE}{warning}\n{command()}\n")
    assert (reading.state, reading.no_ninja, reading.progress) == (RUNNING, True, None)


@pytest.mark.parametrize(
    ("line", "jobs"),
    [
        ("export MAX_JOBS=16", 16),
        ("MAX_JOBS: 4", 4),
        ("Using envvar MAX_JOBS (12) as the number of workers...", 12),
        ("Command '['ninja', '-v', '-j', '2']' returned non-zero exit status 1.", 2),
        ("ninja -v -j 6", 6),
        ("(overridable by setting the environment variable MAX_JOBS=N)", None),
    ],
)
def test_the_number_of_jobs_is_read_in_every_form(line: str, jobs: int | None) -> None:
    assert read(f"{PREAMBLE}{line}\n").jobs == jobs


def test_what_this_programs_status_lines_say_is_taken() -> None:
    lines = [f"[{n}/2782] 38.2/min, 75 min left, peak 1204 MiB: {KERNEL_283}" for n in (1, 2, 3)]
    progress = read(PREAMBLE + "\n".join(lines)).progress
    assert progress
    assert (progress.rate_per_minute, progress.reported_left, progress.peak_mib) == (38.2, "75 min", 1204)
    assert progress.current == KERNEL_283


def test_what_this_program_says_every_half_minute_without_a_terminal_is_progress() -> None:
    lines = [
        "[1/6] fa2.8.3-rocm7.2-torch2.13.0-cp311-ck: setup.py",
        "    setup.py: [100/2782] 300 s, 20.0/min, 134 min left, peak 1204 MiB",
        "    setup.py: [110/2782] 330 s, 20.0/min, 133 min left, peak 1204 MiB",
    ]
    progress = read("\n".join(lines)).progress
    assert progress
    assert (progress.done, progress.total, progress.rate_per_minute) == (110, 2782, 20.0)


def test_numbered_steps_are_no_compiles() -> None:
    with pytest.raises(InputError, match=r"nothing about flash-attn in this text: build.log \(2 lines\)"):
        read("[1/6] download\n[2/6] unpack\n")
    with pytest.raises(InputError, match=r"\(1 line\)"):
        read("[1/6] download\n")


@pytest.mark.parametrize(
    ("log", "what"),
    [("", "empty log"), ("\n \r\n", "empty log"), ("hello\nworld\n", "nothing about flash-attn in this text")],
    ids=["nothing", "blank", "another"],
)
def test_a_text_of_no_known_kind_is_an_error_that_says_what_to_give(log: str, what: str) -> None:
    with pytest.raises(InputError, match=f"{what}: build.log") as caught:
        read(log)
    assert caught.value.hint.startswith("pass the output")
