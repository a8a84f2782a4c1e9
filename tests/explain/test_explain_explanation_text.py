"""The text and JSON of `wheelfactory explain`."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from explain.build_logs import (
    HEALTHY,
    KERNEL_283,
    KERNEL_MAIN,
    PREAMBLE,
    ROCM_HIPCC,
    command,
    compiles,
    failed,
    read,
    running,
    timed,
)
from wheelfactory.cli import main
from wheelfactory.core.errors import BAD_INPUT, DONE
from wheelfactory.explain.explanation import explain_log
from wheelfactory.explain.explanation_text import explanation_lines


class Shown(NamedTuple):
    code: int
    out: str
    err: str


class Explain(Protocol):
    def __call__(self, log: str, *options: str, stdin: bool = False) -> Shown: ...


@pytest.fixture
def explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Explain:
    """A function that explains a log, given as a file or on stdin."""
    path = tmp_path / "build.log"

    def run(log: str, *options: str, stdin: bool = False) -> Shown:
        path.write_bytes(log.encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.encode())))
        code = main(["explain", "-" if stdin else str(path), *options])
        return Shown(code, *capsys.readouterr())

    return run


def section(shown: Shown, title: str) -> list[str]:
    """Return the lines below a title, up to the next blank line."""
    lines = shown.out.splitlines()
    start = lines.index(title) + 1
    return lines[start : lines.index("", start) if "" in lines[start:] else None]


def test_a_running_build_starts_with_progress_remaining_time_and_gpu(explain: Explain) -> None:
    shown = explain(running(111, 2525, jobs=8))
    head, rate, left, ends, arch = shown.out.splitlines()[:5]
    assert (shown.code, shown.err) == (DONE, "")
    assert head.endswith("running, or stopped without a message, 111 of 2525 compiled (4 %)")
    assert rate.startswith("  rate       unknown: no times in the log; predicted ")
    assert left.startswith("  left       2414 sources, 2 h ")
    assert " with 8 jobs (the log), predicted: " in left
    assert ends.endswith("after the last line of the log (no clock times)")
    assert arch == "  for        gfx942  Instinct MI300A, MI300X, MI308X, MI325X"


def test_kernel_reasons_and_advice_are_printed(explain: Explain) -> None:
    shown = explain(running())
    kernel = section(shown, "current kernel")
    assert kernel[:3] == [
        f"  kernel     {KERNEL_MAIN}",
        "  purpose    backward: the gradients dQ, dK, dV: five fused matrix products",
        "  head dim   128, bfloat16",
    ]
    assert any("about 20 CPU hours for one arch" in line for line in section(shown, "why it takes this long"))
    headers = "  - each source reads Composable Kernel's headers again: 6 CPU s, half of a light kernel"
    assert headers in section(shown, "why it takes this long")
    assert any("8 jobs need 11 GiB" in line for line in section(shown, "what to change"))
    rows = {line[2:13].strip(): line[13:] for line in kernel}
    assert rows["options"].startswith("batch: sequences of one length; occupancy: 1")
    assert rows["without"].startswith("bias; gradient of the bias; mask; dropout; transposing loads")


def test_a_compile_of_this_factory_has_precompiled_headers_and_a_store(explain: Explain) -> None:
    log = running().replace(" --offload-arch=gfx942", " --offload-arch=gfx942 --cuda-device-only")
    assert "--cuda-device-only" in log
    shown = section(explain(log), "why it takes this long")
    assert not any("headers" in line or "compiler cache" in line for line in shown)


def test_the_command_is_printed_last_and_the_answers_fit_one_screen(explain: Explain) -> None:
    shown = explain(running(), "--flags")
    flags = section(shown, "flags set by flash-attn")
    assert [line.split()[0] for line in flags[:2]] == ["-O3", "-std=c++20"]
    assert "  -DCK_ENABLE_BF16" in flags
    assert shown.out.index("what to change") < shown.out.index("the command\n")
    assert shown.out.splitlines().index("the command") <= 40
    lines = [line for line in shown.out.splitlines()[1:] if KERNEL_MAIN not in line]
    assert max(map(len, lines)) <= 120


def test_without_flags_the_command_is_short(explain: Explain) -> None:
    shown = explain(running())
    compiler, source, flags = section(shown, "the command")
    assert compiler == "  compiler   /opt/rocm-7.2.0/bin/hipcc of ROCm 7.2.0"
    assert source.endswith(f"{KERNEL_MAIN}.hip")
    assert flags == "  flags      32; --flags explains each"
    assert shown.out.splitlines()[-1] == flags
    assert explain(running(), "--flags", "--json").code == BAD_INPUT


def lines_of(log: str, width: int | None) -> list[str]:
    explanation = explain_log("build.log", read(log), None, 4)
    return [line for line, _ in explanation_lines(explanation, width, flags=True)]


def test_the_first_line_is_wrapped_on_a_terminal_and_in_one_piece_in_a_pipe() -> None:
    log = failed("something unusual")
    whole = "build.log: build failed, 5 of 2525 compiled (0 %), 1 failed; the log shows no known cause"
    assert lines_of(log, None)[0] == whole
    assert lines_of(log, 60)[:2] == [
        "build.log: build failed, 5 of 2525 compiled (0 %), 1 failed;",
        "    the log shows no known cause",
    ]


def test_a_command_in_backticks_stays_on_one_line() -> None:
    export = '`export HIPCC_COMPILE_FLAGS_APPEND="-mllvm -amdgpu-early-inline-all=false"`'
    assert any(export in line for line in lines_of(running(), 80))


def test_a_flag_that_is_longer_than_its_column_has_a_line_of_its_own() -> None:
    lines = lines_of(CUDA, 80)
    at = lines.index("  -gencode=arch=compute_90,code=sm_90a")
    assert lines[at + 1] == " " * 31 + "compile for this NVIDIA arch;"


@pytest.mark.parametrize("width", [80, 100, 160])
def test_lines_fit_the_terminal_and_break_between_words(width: int) -> None:
    for log in (running(), failed("clang++: error: unable to execute command: Killed"), CUDA):
        lines = lines_of(log, width)
        # names of kernels and paths stay in one piece, to be copied
        assert [line for line in lines if len(line) > width and not re.search(r"(fmha_|/)\S{40}", line)] == []
        assert " ".join(lines).split() == " ".join(lines_of(log, 10_000)).split()
    assert any(0.85 * width < len(line) <= width for line in lines_of(running(), width))


def test_cause_and_remedy_are_marked_on_a_terminal(
    explain: Explain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Red and green, without the colours if NO_COLOR is set; a pipe gets plain text."""
    log = failed("clang++: error: unable to execute command: Killed")
    plain = explain(log).out
    assert "\x1b" not in plain
    for name in ("NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    shown = explain(log).out
    red, green = "1;38;5;160", "1;38;5;28"
    assert f"\x1b[{red}m  cause " in shown
    assert f"\x1b[{green}m  remedy " in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3[0-8]", explain(log).out)


@pytest.mark.parametrize(("jobs", "remedy"), [(8, "MAX_JOBS=4,"), (5, "MAX_JOBS=2,"), (1, "one compile alone")])
def test_the_remedy_names_half_of_the_jobs_that_did_not_fit(explain: Explain, jobs: int, remedy: str) -> None:
    log = failed("clang++: error: unable to execute command: Killed").replace("'8'", f"'{jobs}'")
    shown = explain(log)
    (line,) = (line for line in section(shown, "why it failed") if line.startswith("  remedy"))
    assert remedy in line
    assert "halve" not in shown.out
    log = f"{PREAMBLE}[1/2] {command()}\nclang++: error: unable to execute command: Killed\n"
    assert "start fewer compiles at once: MAX_JOBS=4," in explain(log).out  # without a number


def test_a_compiler_cache_in_the_log_is_no_reason(explain: Explain) -> None:
    reason = "no compiler cache on the command line"
    log = running()
    assert reason in explain(log).out
    assert reason not in explain(log.replace(ROCM_HIPCC, f"ccache {ROCM_HIPCC}")).out


def test_several_archs_are_a_reason_with_advice(explain: Explain) -> None:
    shown = explain(f"{PREAMBLE}[5/2782] {command(KERNEL_283, archs=('gfx90a', 'gfx942'))}\n")
    assert "each source is compiled 2 times" in shown.out
    assert "  - compile only for your GPU, for example GPU_ARCHS=gfx90a" in shown.out
    assert "flash-attn 2.8.3 with all head dims" in shown.out


def test_times_in_the_log_give_rate_and_end(explain: Explain) -> None:
    lines = explain(timed(61, seconds=6)).out.splitlines()
    assert lines[1] == "  rate       10.0 per minute"
    assert lines[2].endswith(" min, at the rate so far")  # without a guess of the jobs
    assert lines[3].startswith("  ends       2026-11-21 2")
    assert lines[3].endswith("by the log's clock")


def test_only_one_of_several_compiles_is_explained(explain: Explain) -> None:
    assert "  run        the last of 2 compiles in this log" in explain(running(7, 7) + running(3)).out
    mixed = "\n".join(line for n in range(2, 9) for line in (*compiles(1, 2525, n), *compiles(1, 1387, n + 9)))
    assert "  mixed      this log mixes several parallel compiles" in explain(mixed).out


CUDA = (
    f"{PREAMBLE}[3/73] /usr/local/cuda/bin/nvcc -I/w/csrc/cutlass/include -c "
    "/w/csrc/flash_attn/src/flash_bwd_hdim128_bf16_causal_sm80.cu -o /w/a.o -D__CUDA_NO_HALF_OPERATORS__ "
    "--use_fast_math -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90a --threads 4\n"
)


def test_a_cuda_build_is_explained_in_the_words_of_cuda(explain: Explain) -> None:
    shown = explain(CUDA, "--flags")
    assert "this builds for NVIDIA GPUs; times are predicted for ROCm only" in shown.out
    assert shown.out.splitlines()[1:3] == [
        "  for        sm_80   compute capability 8.0",
        "             sm_90a  compute capability 9.0",
    ]
    assert section(shown, "current kernel")[2:] == ["  head dim   128, bfloat16", "  options    causal mask"]
    assert "compile only for your GPU, for example FLASH_ATTN_CUDA_ARCHS=80" in shown.out
    assert "NVCC_THREADS=4" in shown.out
    assert "unknown flags" not in shown.out
    for foreign in ("CPU hours", "GPU_ARCHS=gfx", "HIPCC", "Composable Kernel", "OPT_DIM"):
        assert foreign not in shown.out


def test_a_cuda_build_without_memory_gets_the_variables_of_nvcc(explain: Explain) -> None:
    shown = explain(f"export MAX_JOBS=6\n{CUDA}FAILED: /w/a.o\nKilled\n")
    assert "start fewer compiles at once: MAX_JOBS=3 and NVCC_THREADS=1" in shown.out
    fatal = explain(f"{CUDA}FAILED: /w/a.o\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n")
    assert 'FLASH_ATTN_CUDA_ARCHS="80;90"' in fatal.out


def test_a_build_with_torch_for_cuda_gets_the_words_of_cuda_before_its_first_command(explain: Explain) -> None:
    log = "Collecting flash-attn\ntorch.__version__  = {}\nOSError: CUDA_HOME environment variable is not set.\n"
    shown = explain(log.format("2.8.0+cu128"))
    assert "  cause      no CUDA compiler" in shown.out
    assert "NVIDIA GPU: install the CUDA toolkit" in shown.out
    assert "  cause      setup.py looks for CUDA" in explain(log.format("2.8.0+rocm6.4")).out


def test_a_failure_without_a_known_cause_says_where_to_read(explain: Explain) -> None:
    assert section(explain(failed("something unusual")), "what to change")[0].startswith("  - read the log after its")


@pytest.mark.parametrize(
    ("hipcc", "condition"), [(ROCM_HIPCC, "clang 23 or newer"), ("/usr/bin/hipcc", "upstream clang")]
)
def test_the_advice_against_early_inlining_names_the_affected_compiler(
    explain: Explain, hipcc: str, condition: str
) -> None:
    shown = explain(command(hipcc=hipcc))
    advice = " ".join(" ".join(section(shown, "what to change")).split())
    assert f"{condition}" in advice.partition(": `export HIPCC_COMPILE_FLAGS_APPEND=")[0]
    assert '`export HIPCC_COMPILE_FLAGS_APPEND="-mllvm -amdgpu-early-inline-all=false"`' in advice


def test_impossible_times_do_not_crash(explain: Explain) -> None:
    name = f"x/{KERNEL_283}.hip"
    lines = [f"{year}-01-01T00:00:00Z [{n}/999999] hipcc -c {name} -o a.o" for n, year in ((1, 2001), (2, 9999))]
    assert explain("\n".join(lines)).code == DONE


def test_the_number_of_jobs_is_from_the_option_or_the_cores_of_this_machine(explain: Explain) -> None:
    assert " with 32 jobs (--jobs), " in explain(running(), "--jobs", "32").out
    assert "(the cores of this machine), predicted" in explain(running().split("\n", 1)[1]).out


def test_a_failed_build_starts_with_cause_and_remedy(explain: Explain) -> None:
    shown = explain(failed("clang++: error: unable to execute command: Killed"))
    assert shown.code == DONE
    assert ": build failed, 5 of 2525 compiled (0 %), 1 failed" in shown.out.splitlines()[0]
    assert section(shown, "why it failed")[:2] == [
        "  cause      out of memory",
        "  log line   clang++: error: unable to execute command: Killed",
    ]
    assert section(shown, "failed kernel")[0] == f"  kernel     {KERNEL_283}"


def test_a_failure_unrelated_to_size_has_no_advice_about_size(explain: Explain) -> None:
    shown = explain(failed("/t/a.h:1:10: fatal error: 'Python.h' file not found"))
    assert "python3-dev" in shown.out
    assert "why it takes this long" not in shown.out
    assert "what to change" not in shown.out


def test_a_finished_build_has_no_advice(explain: Explain) -> None:
    shown = explain(f"{running(3, 3)}Successfully built flash-attn\n")
    assert shown.out.splitlines()[0].endswith("finished, 3 of 3 compiled (100 %)")
    assert "what to change" not in shown.out
    assert "nothing was compiled" in explain(HEALTHY).out


def test_a_single_command_is_explained_without_a_build(explain: Explain) -> None:
    shown = explain(command(), "--flags", stdin=True)
    assert shown.out.splitlines()[:2] == [
        "stdin: a compile command",
        "  for        gfx942  Instinct MI300A, MI300X, MI308X, MI325X",
    ]
    assert "flags set by torch" in shown.out


def test_unknown_flags_are_listed(explain: Explain) -> None:
    assert section(explain(f"{command()} -ffrobnicate", "--flags"), "unknown flags") == ["             -ffrobnicate"]


def test_the_json_has_the_same_documented_keys_for_every_log(explain: Explain) -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/explain.md").read_text()
    logs = (running(), timed(9, 2), failed("Killed"), failed("?"), HEALTHY, PREAMBLE, command())
    documents = [json.loads(explain(log, "--json").out) for log in logs]
    assert {tuple(document) for document in documents} == {tuple(documents[0])}
    keys = {*documents[0]}
    keys |= {key for document in documents for value in document.values() if isinstance(value, dict) for key in value}
    assert [key for key in sorted(keys) if f"`{key}`" not in reference] == []


def test_the_json_has_the_facts_of_the_text(explain: Explain) -> None:
    explanation = json.loads(explain(timed(61, seconds=6), "--json").out)
    assert explanation["state"] == "running"
    assert (explanation["progress"]["done"], explanation["progress"]["total"]) == (61, 2525)
    assert explanation["progress"]["rate_per_minute"] == pytest.approx(10)
    assert explanation["remaining_time"]["measured"] is True
    assert time.gmtime(explanation["remaining_time"]["ends_at"])[:3] == (2026, 11, 21)
    assert explanation["kernel"]["head_dim"] == "128"
    assert explanation["archs"] == [{"arch": "gfx942", "products": "Instinct MI300A, MI300X, MI308X, MI325X"}]


@pytest.mark.parametrize(
    ("argument", "error", "hint"),
    [
        ("missing.log", "neither a log nor a cell id: missing.log", "no file has this name; a cell id looks like fa2."),
        (".", "not a log: . is a folder", "name a log file in it"),
        (command() * 3, "neither a log", "to explain pasted text, pipe it to `wheelfactory explain -`"),
        ("-", "cannot read the log: stdin is closed", ""),
    ],
    ids=["a missing file", "a folder", "a command", "a closed stdin"],
)
def test_an_argument_that_is_no_log_is_a_short_error(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argument: str,
    error: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["explain", argument]) == BAD_INPUT
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {error}")
    assert len(first) < 300
    assert hint in "".join(others)


def test_a_cell_fits_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "fa2.8.3-rocm7.2-torch2.13.0-cp312-ck"]) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["ubuntu22.04,", "glibc", "2.35"]


def test_a_cell_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    cell = "fa2.8.3-rocm7.2-torch2.13.0-cp311-ck"
    assert main(["explain", cell, "--json"]) == DONE
    explanation = json.loads(capsys.readouterr().out)
    assert (explanation["cell"], explanation["archs"]) == (cell, ["gfx90a", "gfx942", "gfx950"])
    fields = ["cell", "label", "pythons", "archs", "unproved", "torch", "index", "triton", "image"]
    assert list(explanation) == fields
    assert explanation["unproved"] == []


def test_a_preview_is_named_with_its_commit_index_and_unproved_archs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-cp312-ck"]) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1] == "  version  2.8.4 preview (commit 4a948e9), in simple/rocm72/torch2.13/ck-preview"
    assert "           of these, not proved: gfx1101, gfx1102, gfx1150, gfx1151, gfx1200" in lines
