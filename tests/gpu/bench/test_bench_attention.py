"""`wheelfactory bench attention` on the CPU with a real torch: right, wrong, missing and crashing kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wheelfactory.build.environments import make_build_environment, make_layered_environment
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.host import cpu_name
from wheelfactory.gpu.bench.measure import PROGRAMS
from wheelfactory.gpu.bench.reports import AttentionReport, AttentionRow, is_steady

pytestmark = pytest.mark.slow

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
"""Other tests run at the same time, and threads that wait for each other compute nothing."""

SMALL = ("--batch", "1", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--dtype", "float32")

STAND_IN = '''
"""A flash_attention_amd that does something else at each length, as kernels can."""
import os
import torch

def flash_attn_func(q, k, v, causal=False):
    length = q.shape[1]
    if length == 33:
        raise RuntimeError("first line\\nno kernel for this length")
    if length == 36:
        os.abort()
    right = torch.nn.functional.scaled_dot_product_attention
    heads = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    scale = q.shape[-1] ** -0.5 * (1.05 if length == 34 else 1)
    output = right(*heads, is_causal=causal, enable_gqa=True, scale=scale).transpose(1, 2)
    return output * float("nan") if length == 35 else output
'''


def bench(python: Path, folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], AttentionReport]:
    """Run the benchmark; return output and report."""
    command = [sys.executable, "-m", "wheelfactory", "bench", "attention", "--python", str(python), *SMALL, *arguments]
    command += ["--output-json", str(folder / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, env=ONE_THREAD)
    return done, AttentionReport.model_validate_json((folder / "report.json").read_bytes())


@pytest.fixture(scope="module")
def python(cache: Path) -> Path:
    """A Python with a CPU build of torch and no implementation."""
    return make_build_environment(cache).python


@pytest.fixture(scope="module")
def measured(
    python: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], AttentionReport]:
    """Forward and backward at two lengths, of all but FlexAttention (test_bench_presets.py)."""
    names = ("--implementations", "flash-attn,fallback,sdpa,plain")
    return bench(python, tmp_path_factory.mktemp("measured"), "--seqlens", "64,128", "--backward", *names)


@pytest.fixture(scope="module")
def stand_in(
    cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], AttentionReport]:
    """Results with an installed fallback whose kernel is wrong or ends the process."""
    folder, torch = tmp_path_factory.mktemp("stand-in"), make_build_environment(cache)
    (folder / "packages").mkdir()
    (folder / "packages/flash_attention_amd.py").write_text(STAND_IN)
    (folder / "packages/flash_attn.py").touch()
    layers = [torch.site_packages, folder / "packages"]
    environment = make_layered_environment(folder / "env", torch.python, torch.version, layers)
    lengths = ("--seqlens", "32,33,34,35,36,37", "--implementations", "flash-attn,fallback")
    return bench(environment.python, folder, *lengths)


def rows(report: AttentionReport, name: str) -> list[AttentionRow]:
    return [row for row in report.rows if row.implementation == name]


def test_every_available_implementation_is_timed_at_every_length(
    measured: tuple[subprocess.CompletedProcess[str], AttentionReport],
) -> None:
    done, report = measured
    assert done.returncode == DONE, done.stdout + done.stderr
    for name in ("fallback", "sdpa", "plain"):
        found = rows(report, name)
        assert [(row.seqlen, row.status, row.reason) for row in found] == [(64, "measured", ""), (128, "measured", "")]
        spreads = [(row.p10_ms or 0, row.ms or 0, row.p90_ms or 0) for row in found]
        assert all(0 < p10 <= middle <= p90 for p10, middle, p90 in spreads)
        assert all(row.repetitions and row.repetitions >= 3 for row in found)
        assert all(row.tflops and row.tflops > 0 for row in found)
        assert all(row.difference and row.difference < 1e-5 for row in found)  # float32 has 24 bits
    assert f"CPU {cpu_name()}, torch 2." in done.stdout
    assert (report.hardware.device, report.dropped_launch_options) == (None, None)


def test_the_textbook_is_the_unit_of_time_and_memory_is_not_measured_on_the_cpu(
    measured: tuple[subprocess.CompletedProcess[str], AttentionReport],
) -> None:
    _, report = measured
    for plain, sdpa in zip(rows(report, "plain"), rows(report, "sdpa"), strict=True):
        assert plain.ms
        assert sdpa.ms
        # other tests run at the same time, so any time may be unsteady
        steady = is_steady(plain) and is_steady(sdpa)
        assert (plain.speedup, sdpa.speedup) == (
            1.0 if is_steady(plain) else None,
            plain.ms / sdpa.ms if steady else None,
        )
    assert {(row.extra_mib, row.memory_ratio) for row in report.rows} == {(None, None)}


def test_missing_implementations_are_reported_and_the_fallback_comes_from_the_checkout(
    measured: tuple[subprocess.CompletedProcess[str], AttentionReport],
) -> None:
    done, report = measured
    assert {(row.status, row.reason) for row in rows(report, "flash-attn")} == {("not run", "not installed")}
    assert "flash-attn, 64, 128 tokens: not run: not installed\n" in done.stdout
    origins = {found.name: found.origin for found in report.implementations}
    torch = dict.fromkeys(("sdpa", "plain"), "torch")
    assert origins == {"flash-attn": None, "fallback": "checkout", **torch}


def test_an_installed_fallback_goes_before_that_of_the_checkout_and_flash_attn_needs_a_gpu(
    stand_in: tuple[subprocess.CompletedProcess[str], AttentionReport],
) -> None:
    _, report = stand_in
    assert {found.name: found.origin for found in report.implementations}["fallback"] == "installed"
    assert {row.reason for row in rows(report, "flash-attn")} == {"needs a GPU"}


def test_each_length_has_its_status(stand_in: tuple[subprocess.CompletedProcess[str], AttentionReport]) -> None:
    done, report = stand_in
    assert done.returncode == FAILED
    assert [(row.seqlen, row.status, row.reason) for row in rows(report, "fallback")] == [
        (32, "measured", ""),
        (33, "failed", "RuntimeError: no kernel for this length"),
        (34, "measured", ""),
        (35, "failed", "a result is not finite"),
        (36, "failed", "killed by SIGABRT"),
        (37, "failed", "killed by SIGABRT"),
    ]
    right, wrong = (row.difference or 0 for row in rows(report, "fallback") if row.status == "measured")
    assert 0 < right < 1e-5 < 1e-3 < wrong


def test_running_out_of_memory_does_not_stop_the_sweep(python: Path) -> None:
    """With little memory, and with a reference that computes five queries at once."""
    config: dict[str, Any] = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 8, "dtype": "float32", "causal": True}
    config |= {"preset": None, "backward": True, "foreign_gpu": False}
    config["seqlens"] = [100_000, 32]  # 80 GB of scores, and 8 kB
    lines = (
        f"import sys; sys.path.append({str(PROGRAMS)!r})",
        "import attention, implementations",
        "attention.BLOCK = 5 * 32",
        f"implementations.run_program(attention.sweep, 'plain', 'cpu', '', {json.dumps(config)!r})",
    )
    program = ["prlimit", f"--as={16 << 30}", str(python), "-I", "-B", "-c", "\n".join(lines)]
    done = subprocess.run(program, capture_output=True, text=True, env=ONE_THREAD)
    large, small = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert (large["seqlen"], large["status"]) == (100_000, "out of memory")
    assert "allocate memory" in large["reason"]
    assert (small["seqlen"], small["status"]) == (32, "measured")
    assert 0 < small["difference"] < 1e-5  # of gradients for keys too, to which all blocks add
