"""A transformer to train in, its report out: each implementation in a process of its own, with its backend set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wheelfactory.core.cell import Backend
from wheelfactory.gpu.bench.measuring import NO_REPORT, Step, circumstances, hear
from wheelfactory.gpu.bench.ratios import median, summarize
from wheelfactory.gpu.bench.reports import Implementation, TrainingConfig, TrainingReport, TrainingResult
from wheelfactory.gpu.foreign_gpu import AUTOTUNE
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.verify.numbers import STANDARDS

IMPLEMENTATIONS = ("ck", "triton", "fallback", "sdpa")
"""What can be trained with: the two backends of flash-attn, the fallback, and torch's own."""

SIZES = ("batch_size", "seq_len", "d_model", "n_heads", "n_layers", "warmup_steps", "timed_steps")
"""The fields of `TrainingConfig` that a preset gives, beside the dtype."""

PRESETS: Mapping[str, Mapping[str, int]] = {
    "mi300x": dict(zip(SIZES, (4, 4096, 1024, 16, 8, 20, 80), strict=True)),
    "default": dict(zip(SIZES, (4, 2048, 1024, 16, 6, 10, 50), strict=True)),
}

_ENABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


def environ_of(name: str, environ: Mapping[str, str], *, autotune: bool) -> dict[str, str]:
    """The environment for an implementation: flash-attn's variables are those that it needs, and no other.

    Upstream takes Triton if the first is exactly TRUE; the second is for that backend alone.
    """
    cleared = {variable: value for variable, value in environ.items() if not variable.startswith("FLASH_ATTENTION_")}
    if name == Backend.CK:
        return {**cleared, _ENABLE: "FALSE"}
    if name == Backend.TRITON:
        return {**cleared, _ENABLE: "TRUE", AUTOTUNE: "TRUE" if autotune else "FALSE"}
    return cleared


def measure_training(
    config: TrainingConfig,
    implementations: Sequence[str],
    python: TorchPython,
    environ: Mapping[str, str],
    step: Step,
    *,
    preset: str | None = None,
) -> TrainingReport:
    """Train with each implementation in that Python."""
    results, dropped = [], set[str]()
    for name in implementations:
        program = "flash-attn" if name in tuple(Backend) else name
        handed = environ_of(name, environ, autotune=config.autotune)
        with step(name):
            said, ended = hear("training.py", program, config.model_dump(mode="json"), python, handed)
        results.append(result_of(name, said, ended, config))
        dropped.update(said.get("dropped") or ())
    return TrainingReport(
        **circumstances(python),
        dropped_launch_options=tuple(sorted(dropped)) if config.foreign_gpu else None,
        preset=preset,
        config=config,
        results=tuple(results),
        summary=summarize(results),
    )


def result_of(name: str, said: Mapping[str, Any], ended: str, config: TrainingConfig) -> TrainingResult:
    """What a program said, else why it says nothing; and whether what was trained with is what was asked for."""
    symbol = said.get("symbol")
    implementation = Implementation(name=name, version=said.get("version"), origin=said.get("origin"), symbol=symbol)
    if said.get("status") != "measured":
        why = ended or said.get("reason") or NO_REPORT
        return TrainingResult(implementation=implementation, status=said.get("status", "failed"), reason=why)
    if name in tuple(Backend) and not (symbol or "").startswith(f"{STANDARDS[Backend(name)].module}."):
        why = f"flash-attn calls {symbol or 'nothing that is known'}, and not {STANDARDS[Backend(name)].module}"
        return TrainingResult(implementation=implementation, status="not run", reason=why)
    median_ms = median(said["step_times_ms"])
    steps_per_s = 1000 / median_ms if median_ms else None
    return TrainingResult(
        implementation=implementation,
        status="measured",
        step_times_ms=said["step_times_ms"],
        median_step_ms=median_ms,
        steps_per_s=steps_per_s,
        tokens_per_s=steps_per_s and steps_per_s * config.batch_size * config.seq_len,
        peak_mib=said["peak_mib"],
        loss_first=said["loss_first"],
        loss_last=said["loss_last"],
    )
