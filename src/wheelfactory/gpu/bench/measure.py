"""Run the benchmark programs and build their reports: one process for each implementation, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from wheelfactory.core.cell import Backend
from wheelfactory.core.files import FALLBACK_SOURCES, factory_version
from wheelfactory.core.host import cpu_name
from wheelfactory.core.process import failure_reason, run
from wheelfactory.gpu.bench.reports import (
    AttentionConfig,
    AttentionReport,
    AttentionRow,
    MeasuredImplementation,
    Summary,
    TrainingConfig,
    TrainingReport,
    TrainingResult,
    attention_tflops,
    is_steady,
    median,
    percentiles,
)
from wheelfactory.gpu.torch_python import AUTOTUNE_VARIABLE, TorchPython
from wheelfactory.verify.accuracy import AITER_TOLERANCE, TOLERANCES

PROGRAMS = Path(__file__).with_name("programs")

ATTENTION_IMPLEMENTATIONS = ("flash-attn", "fallback", "sdpa", "flex", "varlen", "plain")
"""The implementations of a sweep. ``plain`` is textbook attention, the baseline of the ratios."""

PACKED_ONLY = "varlen"
"""The implementation that computes packed sequences only."""

SEQLENS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)

TRAINING_IMPLEMENTATIONS = ("ck", "triton", "fallback", "sdpa")
"""The implementations to train with: flash-attn's two backends, the fallback, and torch's own."""

PRESET_FIELDS = ("batch_size", "seq_len", "d_model", "n_heads", "n_layers", "warmup_steps", "timed_steps")
"""The fields of `TrainingConfig` that a preset sets; it sets the dtype too."""

PRESETS: Mapping[str, Mapping[str, int]] = {
    "mi300x": dict(zip(PRESET_FIELDS, (4, 4096, 1024, 16, 8, 20, 80), strict=True)),
    "default": dict(zip(PRESET_FIELDS, (4, 2048, 1024, 16, 6, 10, 50), strict=True)),
}

_ENABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"
_REPORT = TypeAdapter(dict[str, Any])
_NO_REPORT = "the program succeeded without reporting this"

BeginStep: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Shows the start and end of a named step to the user."""

Answer: TypeAlias = tuple[Mapping[str, Any], str]
"""The last JSON line of a program (empty without one), and why the program failed (empty if it did not)."""


def measure_attention(
    config: AttentionConfig,
    implementations: Sequence[str],
    python: TorchPython,
    environ: Mapping[str, str],
    step: BeginStep,
) -> AttentionReport:
    """Measure every implementation at every length. The variables in `environ` select flash-attn's backend."""
    found = _run_each("attention.py", config, implementations, python, dict.fromkeys(implementations, environ), step)
    return AttentionReport(
        **_report_header(python, config, found),
        cpu=cpu_name(),
        implementations=tuple(_implementation(name, reported) for name, (reported, _) in found.items()),
        rows=with_ratios([row for name, answer in found.items() for row in _rows(name, *answer, config)]),
    )


def _rows(name: str, reported: Mapping[str, Any], ended: str, config: AttentionConfig) -> Iterator[AttentionRow]:
    """A row for each length: the program's result, or why it has none."""
    by_length = {row["seqlen"]: row for row in reported.get("rows", ())}
    missing = {"status": reported.get("status") or "failed", "reason": ended or reported.get("reason") or _NO_REPORT}
    for seqlen in config.seqlens:
        row = by_length.get(seqlen, missing)
        times = row.get("times_ms", ())
        p10, p90 = percentiles(times)
        yield AttentionRow(
            implementation=name,
            seqlen=seqlen,
            status=row["status"],
            reason=row.get("reason", ""),
            ms=median(times),
            p10_ms=p10,
            p90_ms=p90,
            repetitions=len(times) or None,
            tflops=attention_tflops(config, row.get("pairs"), median(times)),
            extra_mib=row.get("extra_mib"),
            difference=row.get("difference"),
        )


def measure_training(
    config: TrainingConfig,
    implementations: Sequence[str],
    python: TorchPython,
    environ: Mapping[str, str],
    step: BeginStep,
    *,
    preset: str | None = None,
) -> TrainingReport:
    """Train with each implementation."""
    environs = {name: _environ(name, environ, autotune=config.autotune) for name in implementations}
    found = _run_each("training.py", config, implementations, python, environs, step)
    results = tuple(_result(name, *answer, config) for name, answer in found.items())
    return TrainingReport(
        **_report_header(python, config, found), preset=preset, results=results, summary=summarize(results)
    )


def _environ(name: str, environ: Mapping[str, str], *, autotune: bool) -> dict[str, str]:
    """The environment for an implementation: of flash-attn's variables, only those it needs."""
    cleared = {variable: value for variable, value in environ.items() if not variable.startswith("FLASH_ATTENTION_")}
    if name == Backend.CK:
        return {**cleared, _ENABLE: "FALSE"}
    if name == Backend.TRITON:
        # upstream compares with exactly TRUE
        return {**cleared, _ENABLE: "TRUE", AUTOTUNE_VARIABLE: "TRUE" if autotune else "FALSE"}
    return cleared


def _result(name: str, reported: Mapping[str, Any], ended: str, config: TrainingConfig) -> TrainingResult:
    """The program's result, or why it has none. A run with another backend than requested counts as not run."""
    implementation = _implementation(name, reported)
    symbol = implementation.symbol
    if reported.get("status") != "measured":
        why = ended or reported.get("reason") or _NO_REPORT
        return TrainingResult(implementation=implementation, status=reported.get("status", "failed"), reason=why)
    modules = _modules(name)
    if modules and not (symbol or "").startswith(tuple(f"{module}." for module in modules)):
        why = f"flash-attn called {symbol or 'an unknown function'} instead of {' or '.join(modules)}"
        return TrainingResult(implementation=implementation, status="not run", reason=why)
    median_ms = median(reported["step_times_ms"])
    steps_per_s = 1000 / median_ms if median_ms else None
    return TrainingResult(
        implementation=implementation,
        **{name: reported[name] for name in ("status", "step_times_ms", "peak_mib", "loss_first", "loss_last")},
        median_step_ms=median_ms,
        steps_per_s=steps_per_s,
        tokens_per_s=steps_per_s and steps_per_s * config.batch_size * config.seq_len,
    )


def _modules(name: str) -> tuple[str, ...]:
    """The modules of flash-attn's backend `name`, of its releases and of previews; none for other implementations."""
    if name not in tuple(Backend):
        return ()
    own = TOLERANCES[Backend(name)].module
    return (own, AITER_TOLERANCE.module) if name == Backend.TRITON else (own,)


def _implementation(name: str, reported: Mapping[str, Any]) -> MeasuredImplementation:
    symbols = (row.get("symbol") for row in (reported, *reported.get("rows", ())))
    found = {key: reported.get(key) for key in ("version", "origin", "aiter")}
    return MeasuredImplementation(name=name, symbol=next(filter(None, symbols), None), **found)


def _run_each(
    program: str,
    config: AttentionConfig | TrainingConfig,
    implementations: Sequence[str],
    python: TorchPython,
    environs: Mapping[str, Mapping[str, str]],
    step: BeginStep,
) -> Mapping[str, Answer]:
    """Run a program for each implementation, in its environment."""
    found = {}
    for name in implementations:
        loaded = "flash-attn" if name in tuple(Backend) else name
        with step(name):
            found[name] = _run_program(program, loaded, config, python, environs[name])
    return found


def _run_program(
    program: str, name: str, config: AttentionConfig | TrainingConfig, python: TorchPython, environ: Mapping[str, str]
) -> Answer:
    """Run a program for one implementation."""
    device = "cuda" if python.gpu.device else "cpu"  # torch calls AMD GPUs cuda too
    arguments = [name, device, str(FALLBACK_SOURCES / "src"), config.model_dump_json()]
    done = run([python.python, "-I", "-B", PROGRAMS / program, *arguments], environ=environ)
    for line in reversed(done.stdout.splitlines()):  # other lines come from libraries
        with suppress(ValueError):
            return _REPORT.validate_json(line), failure_reason(done) if done.returncode else ""
    return {}, failure_reason(done) if done.returncode else ""


def _report_header(
    python: TorchPython, config: AttentionConfig | TrainingConfig, found: Mapping[str, Answer]
) -> dict[str, Any]:
    """The fields that every report has."""
    dropped = {option for reported, _ in found.values() for option in reported.get("dropped") or ()}
    return {
        "factory": factory_version(),
        "time": datetime.now(timezone.utc).replace(microsecond=0),
        "hardware": python.gpu,
        "software": python.software,
        "dropped_launch_options": tuple(sorted(dropped)) if config.foreign_gpu else None,
        "config": config,
    }


def ratio(one: float | None, other: float | None) -> float | None:
    """`one` divided by `other`; None if either is unknown or `other` is 0."""
    return one / other if one is not None and other else None


def with_ratios(rows: Sequence[AttentionRow]) -> tuple[AttentionRow, ...]:
    """The rows with their ratios to the ``plain`` row of the same length; no ratio of times that are not steady."""
    plain = {row.seqlen: row for row in rows if row.implementation == "plain"}
    found = []
    for row in rows:
        if baseline := plain.get(row.seqlen):
            speedup = ratio(baseline.ms, row.ms) if is_steady(baseline) and is_steady(row) else None
            ratios = {"speedup": speedup, "memory_ratio": ratio(baseline.extra_mib, row.extra_mib)}
            row = row.model_copy(update=ratios)
        found.append(row)
    return tuple(found)


def summarize(results: Sequence[TrainingResult]) -> Summary:
    """Compare FA3 (triton) with FA2 (ck)."""
    named = {result.implementation.name: result for result in results}
    ck, triton = named.get("ck"), named.get("triton")
    if ck is None or triton is None:
        return Summary()
    both = ck.peak_mib is not None and triton.peak_mib is not None
    return Summary(
        fa3_speedup=ratio(ck.median_step_ms, triton.median_step_ms),
        fa3_memory_ratio=ratio(triton.peak_mib, ck.peak_mib),
        fa3_memory_delta_mib=(triton.peak_mib or 0) - (ck.peak_mib or 0) if both else None,
    )
