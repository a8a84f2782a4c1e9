"""The facts read from a log, and the remaining time, by its rate or by measured costs."""

from __future__ import annotations

import dataclasses

import pytest

from explain.build_logs import KERNEL_283, PREAMBLE, command, compiles, failed, read, running, timed
from wheelfactory.build.setup_py import GIB_PER_COMPILE
from wheelfactory.core.errors import InputError
from wheelfactory.explain.build_log import COMMAND, FINISHED, PREPARING, RUNNING
from wheelfactory.explain.causes import symptom_table
from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.progress import ONE_HEAD_DIM, Progress, estimate_remaining_time, mean_cpu_seconds
from wheelfactory.kernels.compiler.costs import ordinary_cost


def test_a_log_that_ends_within_a_line_is_read_up_to_there() -> None:
    whole = running(111)
    reading = read(whole[: len(whole) - 900])
    assert reading.progress
    assert reading.progress.done == 111
    assert reading.command
    assert reading.command.archs == ("gfx942",)


KILLED = failed("clang++: error: unable to execute command: Killed")
MISSING = "ModuleNotFoundError: No module named 'torch'\nerror: subprocess-exited-with-error\n"


def test_the_last_word_of_a_log_is_its_state() -> None:
    for end in (
        "Successfully built flash-attn",
        "creating '/w/dist/flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl' and adding 'build/bdist' to it",
        "Finished processing dependencies for flash-attn==2.8.3",
        "/w/dist/flash_attn-2.8.3+rocm72torch2.9-cp312-cp312-manylinux_2_35_x86_64.whl",
    ):
        for before in ("", KILLED):
            reading = read(f"{before}{running(3, 3)}{end}\n")
            assert (reading.state, reading.cause) == (FINISHED, None)
    assert read(PREAMBLE).state == PREPARING
    assert read(f"{running(3, 3)}Successfully built flash-attn\n{running(5, 2782)}").state == RUNNING
    again = read(MISSING + KILLED + running(3))
    assert (again.state, again.cause, again.failed_objects) == (RUNNING, None, 0)


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


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("", "empty log: build.log"),
        ("\n \r\n", "empty log: build.log"),
        ("hello\nworld\n", "not a known error about flash-attn: build.log"),
        ("[1/6] download\n[2/6] unpack\n", r"about flash-attn: build.log \(2 lines\)"),
        ("[1/6] download\n", r"about flash-attn: build.log \(1 line\)"),
    ],
    ids=["nothing", "blank", "another", "numbered steps", "one step"],
)
def test_a_text_of_no_known_kind_is_an_error_that_says_what_to_give(log: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        read(log)
    assert caught.value.hint.startswith("pass the output")


def progress_of(log: str) -> Progress:
    progress = read(log).progress
    assert progress
    return progress


def test_the_usual_mix_is_a_whole_release() -> None:
    bindings = 7
    mix, releases = glossary().typical_kernel_counts, glossary().releases_by_source_count
    assert releases[str(sum(mix.values()) + bindings)].startswith("flash-attn 2.8.3")
    assert str(ONE_HEAD_DIM) in releases


def test_the_prediction_for_a_release_is_near_a_measured_one() -> None:
    """A stratified sum of real compiles: 21.5 CPU hours for one arch."""
    whole = sum(glossary().typical_kernel_counts.values())
    assert 21.5 / 1.5 < mean_cpu_seconds() * whole / 3600 < 21.5 * 1.5


def test_the_memory_per_job_covers_the_largest_compile_and_is_the_one_in_the_remedy() -> None:
    assert (
        max(ordinary_cost(name, 1).peak_mib for name in glossary().typical_kernel_counts) + 100
        <= GIB_PER_COMPILE * 1024
    )
    assert f"a job needs {GIB_PER_COMPILE} GiB" in symptom_table().remedies["fewer jobs"]


def test_without_times_the_estimate_is_from_costs_and_jobs() -> None:
    progress = progress_of(running(111))
    eight, sixteen = estimate_remaining_time(progress, 8, 1, 8), estimate_remaining_time(progress, 16, 1, 8)
    assert not eight.measured
    assert eight.left_s == pytest.approx(eight.cpu_hours_left * 3600 / 8)
    assert sixteen.left_s == pytest.approx(eight.left_s / 2)
    assert 0.9 < eight.cpu_hours_left / (eight.cpu_hours * (2525 - 111) / 2525) < 1.1
    assert eight.ends_at is None


def test_more_archs_cost_more() -> None:
    progress = progress_of(running(111))
    one, two, three = (estimate_remaining_time(progress, 8, archs, 8).left_s for archs in (1, 2, 3))
    assert one < two < 2 * one
    assert three - two == pytest.approx(two - one)


def test_with_times_the_estimate_is_from_the_rate_and_ends_by_the_logs_clock() -> None:
    log = timed(101, seconds=6)
    progress = progress_of(log)
    ahead = estimate_remaining_time(progress, 8, 1, 8)
    assert ahead.measured
    assert ahead.left_s == pytest.approx(
        (2525 - 101) * 6, rel=0.3
    )  # the finished kernels were more expensive than the mean
    assert ahead.ends_at
    assert progress.last_time
    assert ahead.ends_at - progress.last_time == pytest.approx(ahead.left_s)


def test_expensive_kernels_first_leave_a_cheaper_rest() -> None:
    expensive = progress_of("\n".join(compiles(50, name="fmha_bwd_d256_bf16_batch")))
    cheap = progress_of("\n".join(compiles(50, name="fmha_bwd_convert_dq_d64_bf16_batch")))
    assert estimate_remaining_time(expensive, 8, 1, 8).left_s < estimate_remaining_time(cheap, 8, 1, 8).left_s


def test_the_rate_scales_with_the_number_of_jobs() -> None:
    progress = progress_of(timed(50, seconds=6))
    assert estimate_remaining_time(progress, 16, 1, 8).left_s == pytest.approx(
        estimate_remaining_time(progress, 8, 1, 8).left_s / 2
    )


def test_the_estimate_starts_at_the_whole_and_ends_at_zero() -> None:
    finished = dataclasses.replace(progress_of(running(111)), done=2525)
    assert estimate_remaining_time(finished, 8, 1, 8).left_s == 0
    progress = progress_of("[0/2525] fmha_fwd_api")
    ahead = estimate_remaining_time(dataclasses.replace(progress, cost_done=0.0, named_count=0), 8, 1, 8)
    assert ahead.cpu_hours_left == pytest.approx(ahead.cpu_hours)
