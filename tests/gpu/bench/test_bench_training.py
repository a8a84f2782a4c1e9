"""`wheelfactory bench training` on the CPU, with a real torch: a transformer is trained, and learns."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from wheelfactory.build.environments import make_build_environment
from wheelfactory.core.errors import DONE
from wheelfactory.gpu.bench.reports import TrainingReport, TrainingResult, read_training_report

pytestmark = pytest.mark.slow

SIZES = {
    "batch-size": 2,
    "seq-len": 32,
    "d-model": 32,
    "n-heads": 2,
    "n-layers": 2,
    "warmup-steps": 2,
    "timed-steps": 7,
}


@pytest.fixture(scope="module")
def report(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingReport:
    """Of a training with torch's attention, the fallback, and a backend that is not there."""
    path = tmp_path_factory.mktemp("training") / "report.json"
    command = [sys.executable, "-m", "wheelfactory", "bench", "training", "--output-json", str(path)]
    python = ("--python", str(make_build_environment(cache).python), "--implementations", "sdpa,fallback,ck")
    sizes = [f"--{name}={size}" for name, size in SIZES.items()]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}  # other tests run at the same time
    done = subprocess.run([*command, *python, *sizes], capture_output=True, text=True, env=environ)
    assert done.returncode == DONE, done.stdout + done.stderr
    assert "FA2 (ck): not run: not installed\n" in done.stdout
    return read_training_report(path)


def results(report: TrainingReport) -> dict[str, TrainingResult]:
    return {result.implementation.name: result for result in report.results}


def test_the_figures_follow_from_the_timed_steps(report: TrainingReport) -> None:
    for name in ("sdpa", "fallback"):
        result = results(report)[name]
        assert (result.status, len(result.step_times_ms), result.peak_mib) == ("measured", 7, None)
        assert result.median_step_ms == statistics.median(result.step_times_ms) > 0
        assert result.tokens_per_s == pytest.approx(2 * 32 * 1000 / result.median_step_ms)


def test_every_implementation_begins_at_the_same_loss_and_learns(report: TrainingReport) -> None:
    sdpa, fallback = results(report)["sdpa"], results(report)["fallback"]
    assert sdpa.loss_first == pytest.approx(fallback.loss_first, abs=0.01)
    assert sdpa.loss_last == pytest.approx(fallback.loss_last, abs=0.05)
    for result in (sdpa, fallback):
        assert result.loss_first
        assert result.loss_last
        # the loss of 1024 equally likely tokens is ln 1024 = 6.93; without learning it would stay there
        assert 6.7 < result.loss_first < 7.4
        assert result.loss_last < result.loss_first - 0.1


def test_all_sizes_are_those_given_and_no_preset_is_named(report: TrainingReport) -> None:
    sizes = report.config.model_dump(exclude={"dtype", "autotune", "foreign_gpu"})
    assert sizes == {name.replace("-", "_"): size for name, size in SIZES.items()}
    assert report.preset is None
