"""Benchmarks on machines with and without a GPU: the programs they start, and the use of the programs' answers.

The GPUs are simulated (`gpu_python`). Other tests run the programs on a real CPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli
from gpu.bench.gpu_python import CPU, H200, MI300X, attention, length, make_gpu_python, training
from gpu.bench.made_reports import trained, training_report
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED
from wheelfactory.core.host import cpu_name
from wheelfactory.gpu.bench.bench_text import training_text
from wheelfactory.gpu.bench.reports import AttentionReport
from wheelfactory.gpu.torch_python import AUTOTUNE_VARIABLE
from wheelfactory.verify.accuracy import AITER_TOLERANCE

pytestmark = pytest.mark.slow

CK, TRITON = "flash_attn_2_cuda.fwd", "flash_attn.flash_attn_triton_amd.interface_fa.fwd"
BOTH = {"flash-attnFALSE": training(CK, 120.0, 20000.0), "flash-attnTRUE": training(TRITON, 100.0, 19000.0)}
REFUSED = "ImportError: FLASH_ATTENTION_TRITON_AMD_ENABLE=FALSE asks for the Composable Kernel backend"
TRITON_WHEEL = {**BOTH, "flash-attnFALSE": {"status": "not run", "reason": REFUSED}}
SWEEP = {
    "flash-attn": attention(length(128, 0.5, 1.0), length(256, 1.0, 2.0), dropped=["waves_per_eu"]),
    "plain": attention(length(128, 1.0, 10.0), {"seqlen": 256, "status": "out of memory", "reason": "OutOfMemory"}),
}
LENGTHS = ("--seqlens", "128,256", "--implementations", "flash-attn,plain")


def test_both_backends_are_trained_with_the_preset_each_with_its_variable(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AMD_REF", "AMD_AUTOTUNE", "AMD_ENABLE"):
        monkeypatch.setenv(f"FLASH_ATTENTION_TRITON_{name}", "TRUE")
    gpu = make_gpu_python(tmp_path / "gpu", BOTH)

    shown = cli("bench", "training", "--python", gpu.python, "--output-json", "report.json")

    assert shown.code == DONE
    ck, triton = gpu.calls
    assert ck["environ"] == {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE"}
    assert triton["environ"] == {
        "FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE",
        "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE": "FALSE",
    }
    sizes = {"batch_size": 4, "seq_len": 4096, "d_model": 1024, "n_heads": 16, "n_layers": 8}
    steps = {"warmup_steps": 20, "timed_steps": 80, "dtype": "bfloat16", "autotune": False, "foreign_gpu": False}
    assert ck["config"] == triton["config"] == {**sizes, **steps}
    assert {(call["program"], call["name"], call["device"]) for call in gpu.calls} == {
        ("training.py", "flash-attn", "cuda")
    }
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["preset"] == "mi300x"
    assert report["hardware"] == {"vendor": "amd", "device": "AMD Instinct MI300X", "arch": "gfx942"}
    figures = report["results"][1]
    assert (figures["median_step_ms"], figures["steps_per_s"], figures["tokens_per_s"]) == (100.0, 10.0, 163840.0)
    assert figures["implementation"]["symbol"] == TRITON
    assert report["summary"]["fa3_speedup"] == pytest.approx(1.2)
    assert "FA3 is 1.20 times as fast as FA2, with 1,000 MiB less at its peak." in shown.out


def test_a_backend_with_more_memory_is_reported_as_such() -> None:
    lines = training_text(
        training_report(trained("ck", 100.0, peak_mib=500.0), trained("triton", 125.0, peak_mib=750.0))
    )
    assert list(lines)[-1] == "FA3 is 0.80 times as fast as FA2, with 250 MiB more at its peak."


def test_the_lighter_preset_and_single_sizes_are_taken(cli: Cli, tmp_path: Path) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", BOTH)
    cli("bench", "training", "--python", gpu.python, "--preset", "default", "--n-layers", 3, "--autotune")
    config = gpu.calls[0]["config"]
    assert [config[name] for name in ("seq_len", "n_layers", "warmup_steps", "timed_steps")] == [2048, 3, 10, 50]
    assert [call["environ"].get("FLASH_ATTENTION_TRITON_AMD_AUTOTUNE") for call in gpu.calls] == [None, "TRUE"]


def test_a_missing_backend_is_reported_and_not_compared(cli: Cli, tmp_path: Path) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", TRITON_WHEEL)
    shown = cli("bench", "training", "--python", gpu.python, "--output-json", "report.json")
    assert shown.code == DONE
    assert f"FA2 (ck): not run: {REFUSED}\n" in shown.out
    assert "times as fast" not in shown.out
    assert json.loads((tmp_path / "report.json").read_text())["summary"]["fa3_speedup"] is None


@pytest.mark.parametrize(("symbol", "called"), [(CK, CK), (None, "an unknown function")])
def test_a_run_without_the_right_backend_does_not_count(
    cli: Cli, tmp_path: Path, symbol: str | None, called: str
) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", {**BOTH, "flash-attnTRUE": training(symbol, 120.0, 20000.0)})
    shown = cli("bench", "training", "--python", gpu.python)
    why = f"flash-attn called {called} instead of {TRITON.removesuffix('.fwd')} or {AITER_TOLERANCE.module}"
    assert f"FA3 (triton): not run: {why}\n" in shown.out


def test_the_kernels_of_a_preview_are_those_of_aiter(cli: Cli, tmp_path: Path) -> None:
    symbol = f"{AITER_TOLERANCE.module}.fwd"
    answers = {**BOTH, "flash-attnTRUE": training(symbol, 120.0, 20000.0, aiter="0.1.14.post1")}
    shown = cli("bench", "training", "--python", make_gpu_python(tmp_path / "gpu", answers).python)
    assert "FA3 (triton): not run" not in shown.out
    assert f"calls {symbol}, of amd-aiter 0.1.14.post1, not of this factory\n" in shown.out


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        pytest.param({}, "FA3 (triton): not run: not installed", id="nothing runs"),
        pytest.param(
            {**BOTH, "flash-attnTRUE": {"killed": True}}, "FA3 (triton): failed: killed by SIGKILL", id="killed"
        ),
        pytest.param(
            {**BOTH, "flash-attnTRUE": {"status": "failed", "reason": "RuntimeError: x"}},
            "FA3 (triton): failed: RuntimeError: x",
            id="raises",
        ),
        pytest.param(
            {**BOTH, "flash-attnTRUE": {}}, "FA3 (triton): failed: the program succeeded without reporting", id="silent"
        ),
    ],
)
def test_a_training_that_fails_ends_with_1(cli: Cli, tmp_path: Path, answers: dict[str, Any], message: str) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", answers)
    shown = cli("bench", "training", "--python", gpu.python)
    assert shown.code == FAILED
    assert message in shown.out


@pytest.mark.parametrize(("step_ms", "code"), [(95.0, FAILED), (96.0, DONE)])
def test_a_step_that_takes_more_than_5_percent_more_than_before_ends_with_1(
    cli: Cli, tmp_path: Path, step_ms: float, code: int
) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", BOTH)
    cli("bench", "training", "--python", gpu.python, "--output-json", "old.json")
    old = json.loads((tmp_path / "old.json").read_text())
    old["results"][1]["median_step_ms"] = step_ms
    (tmp_path / "old.json").write_text(json.dumps(old))

    shown = cli("bench", "training", "--python", gpu.python, "--compare", "old.json", "--output-json", "new.json")

    assert shown.code == code
    assert (tmp_path / "new.json").exists()
    assert ("1 worse" in shown.out) is (code == FAILED)
    row = next(line for line in shown.out.splitlines() if line.startswith("FA3 (triton)") and "median" in line)
    assert row.endswith("worse") is (code == FAILED)
    ten = cli("bench", "training", "--python", gpu.python, "--compare", "old.json", "--threshold", 10)
    assert ten.code == DONE


def test_a_report_of_other_sizes_is_refused_before_anything_is_trained(cli: Cli, tmp_path: Path) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", BOTH)
    (tmp_path / "old.json").write_text(training_report().model_dump_json())
    shown = cli("bench", "training", "--python", gpu.python, "--compare", "old.json", "--batch-size", 1)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith("error: cannot compare these reports: old.json: batch_size 4 there, 1 here\n")
    assert gpu.calls == []


@pytest.mark.parametrize(
    ("arguments", "torch", "variables", "error"),
    [
        (("training",), MI300X, {}, "not a non-AMD GPU: AMD Instinct MI300X"),
        (("training", "--autotune"), H200, {}, "cannot autotune on a non-AMD GPU: upstream has no"),
        (("attention",), H200, {AUTOTUNE_VARIABLE: "True"}, "cannot autotune on a non-AMD GPU: upstream has no"),
    ],
)
def test_the_test_mode_is_refused_where_it_does_not_apply(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    torch: dict[str, Any],
    variables: dict[str, str],
    error: str,
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    gpu = make_gpu_python(tmp_path / "gpu", {**BOTH, **SWEEP}, torch)
    shown = cli("bench", *arguments, "--non-amd-gpu", "--python", gpu.python)
    assert (shown.code, shown.out, gpu.calls) == (BAD_INPUT, "", [])
    assert shown.err.startswith(f"error: {error}")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("training", "--d-model", "100", "--n-heads", "3"), "--n-heads does not divide --d-model: --d-model 100"),
        (("attention", "--heads", "8", "--kv-heads", "3"), "--kv-heads does not divide --heads: 8 query heads, 3"),
        (("attention", "--seqlens", "128,none"), "bad arguments: argument --seqlens: not a number from 1 to 999999"),
        (("attention", "--implementations", "fast"), "bad arguments: argument --implementations: not one of flash-at"),
        (
            ("training", "--output-json", "gpu/torch.py/a.json"),
            "bad arguments: argument --output-json: cannot write in",
        ),
        (("attention", "--plot", "gpu/torch.py/new/a.svg"), "bad arguments: argument --plot: cannot write in"),
        (("training", "--output-json", "."), "bad arguments: argument --output-json: is a directory: '.'"),
    ],
)
def test_invalid_measurements_are_refused(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], error: str) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", BOTH)
    shown = cli("bench", *arguments, "--python", gpu.python)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: {error}")
    assert gpu.calls == []


def test_the_sweep_is_a_row_a_length_with_ratios_and_reasons(cli: Cli, tmp_path: Path) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", SWEEP)

    shown = cli("bench", "attention", "--python", gpu.python, *LENGTHS, "--output-json", "a.json", "--plot", "a.svg")

    assert shown.code == DONE
    rows = [line.split() for line in shown.out.splitlines() if line.startswith("   ")]
    assert rows == [
        ["128", "flash-attn", "0.06711", "0.5", "0.492", "0.508", "3", "1", "1.0e-03", "2.00", "x", "10.00", "x"],
        ["128", "plain", "0.03355", "1", "0.984", "1.016", "3", "10", "1.0e-03", "1.00", "x", "1.00", "x"],
        ["256", "flash-attn", "0.1342", "1", "0.984", "1.016", "3", "2", "1.0e-03", "-", "-"],
        ["256", "plain", "-", "out", "of", "memory", "-", "-", "-", "-", "-", "-", "-"],
    ]
    assert "plain, 256 tokens: out of memory: OutOfMemory\n" in shown.out
    assert AttentionReport.model_validate_json((tmp_path / "a.json").read_bytes()).hardware.arch == "gfx942"
    assert "extra memory (MiB)" in (tmp_path / "a.svg").read_text()


def test_without_lengths_a_gpu_is_given_the_whole_sweep(cli: Cli, tmp_path: Path) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", {})
    shown = cli("bench", "attention", "--python", gpu.python)
    assert shown.code == FAILED  # nothing is installed
    assert [call["name"] for call in gpu.calls] == ["flash-attn", "fallback", "sdpa", "flex", "plain"]
    assert gpu.calls[0]["config"]["seqlens"] == [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
    assert gpu.calls[0]["config"]["kv_heads"] == 8
    assert [gpu.calls[0]["config"][name] for name in ("batch", "backward", "preset")] == [2, False, None]


@pytest.mark.parametrize(
    ("preset", "options", "found"),
    [
        ("varlen", ("--batch", "3", "--backward"), {"batch": 3, "backward": True}),
        ("deterministic", (), {"batch": 2, "backward": True}),
        ("window", (), {"batch": 2, "backward": False}),
    ],
)
def test_a_preset_has_defaults_of_its_own(
    cli: Cli, tmp_path: Path, preset: str, options: tuple[str, ...], found: dict[str, Any]
) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", {})
    cli("bench", "attention", "--python", gpu.python, "--preset", preset, *options)
    assert {name: gpu.calls[0]["config"][name] for name in ("preset", *found)} == {"preset": preset, **found}
    assert ("varlen" in [call["name"] for call in gpu.calls]) is (preset == "varlen")


def test_the_test_mode_is_shown_and_recorded(cli: Cli, tmp_path: Path) -> None:
    gpu = make_gpu_python(tmp_path / "gpu", SWEEP, H200)
    shown = cli("bench", "attention", "--python", gpu.python, *LENGTHS, "--non-amd-gpu", "--output-json", "a.json")
    assert gpu.calls[0]["config"]["foreign_gpu"] is True
    assert f"NVIDIA H200 (sm_90), CPU {cpu_name()}, torch 2.11.0+cu130, CUDA 13.0" in shown.out
    assert "(dropped launch options: waves_per_eu): not evidence for AMD GPUs" in shown.out
    assert AttentionReport.model_validate_json((tmp_path / "a.json").read_bytes()).dropped_launch_options == (
        "waves_per_eu",
    )


@pytest.mark.parametrize(
    ("options", "is_told"), [((), True), (("--non-amd-gpu",), False)], ids=["as users run it", "test mode"]
)
def test_a_triton_wheel_on_nvidia_suggests_the_test_mode(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], is_told: bool
) -> None:
    answer = attention(status="failed", reason="KeyError: 'Keyword argument waves_per_eu was specified'")
    gpu = make_gpu_python(tmp_path / "gpu", {**SWEEP, "flash-attn": answer}, H200)
    shown = cli("bench", "attention", "--python", gpu.python, *LENGTHS, *options)
    assert shown.code == FAILED
    assert "flash-attn, 128, 256 tokens: failed: KeyError: " in shown.out
    assert ("only in test mode: add --non-amd-gpu" in shown.err) is is_told


def test_the_cpu_is_given_no_preset(cli: Cli, tmp_path: Path) -> None:
    cpu = make_gpu_python(tmp_path / "cpu", BOTH, CPU)
    shown = cli("bench", "training", "--python", cpu.python, "--preset", "default", "--batch-size", 1, "--seq-len", 64)
    assert (shown.code, shown.out, cpu.calls) == (BAD_INPUT, "", [])
    first, second = shown.err.splitlines()
    assert first.startswith("error: the presets need a GPU: the torch of ")
    missing = "--d-model, --n-heads, --n-layers, --warmup-steps, --timed-steps"
    assert first.endswith(f"has none, and these sizes are missing: {missing}")
    line = second.removeprefix("hint: set all of them: wheelfactory ").split()
    assert cli(*line, "--python", cpu.python).code == FAILED  # the arguments are valid, but nothing is installed
    assert [call["device"] for call in cpu.calls] == ["cpu", "cpu"]


def test_the_cpu_is_not_given_the_whole_sweep(cli: Cli, tmp_path: Path) -> None:
    cpu = make_gpu_python(tmp_path / "cpu", SWEEP, CPU)
    shown = cli("bench", "attention", "--python", cpu.python)
    assert (shown.code, shown.out, cpu.calls) == (BAD_INPUT, "", [])
    first, second = shown.err.splitlines()
    assert first.startswith("error: the default sequence lengths need a GPU: the torch of ")
    line = second.removeprefix("hint: choose shorter lengths for the CPU: `wheelfactory ").removesuffix("`").split()
    cli(*line, "--python", cpu.python)
    assert cpu.calls[0]["config"]["seqlens"] == [128, 256, 512]
