"""What to measure in, its report out: each implementation in a process of its own, one after the other."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

from wheelfactory.core.cell import Backend
from wheelfactory.core.checkout import FALLBACK_SOURCES, factory_version
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
)
from wheelfactory.gpu.torch_python import AUTOTUNE_VARIABLE, TorchPython
from wheelfactory.gpu.validate.report import as_hardware, as_software
from wheelfactory.verify.numbers import TOLERANCES

PROGRAMS = Path(__file__).with_name("programs")

ATTENTION_IMPLEMENTATIONS = ("flash-attn", "fallback", "sdpa", "plain")
"""What can be measured; ``plain`` is the textbook, which the ratios compare with."""

SEQLENS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)

TRAINING_IMPLEMENTATIONS = ("ck", "triton", "fallback", "sdpa")
"""What can be trained with: the two backends of flash-attn, the fallback, and torch's own."""

PRESET_FIELDS = ("batch_size", "seq_len", "d_model", "n_heads", "n_layers", "warmup_steps", "timed_steps")
"""The fields of `TrainingConfig` that a preset gives, beside the dtype."""

PRESETS: Mapping[str, Mapping[str, int]] = {
    "mi300x": dict(zip(PRESET_FIELDS, (4, 4096, 1024, 16, 8, 20, 80), strict=True)),
    "default": dict(zip(PRESET_FIELDS, (4, 2048, 1024, 16, 6, 10, 50), strict=True)),
}

_ENABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"
_NO_REPORT = "it ended as if all were well, and did not say so"
"""Why nothing is known of what a program did not speak of."""

BeginStep: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""What tells a person that something of this name is under way."""


def measure_attention(
    config: AttentionConfig,
    implementations: Sequence[str],
    python: TorchPython,
    environ: Mapping[str, str],
    step: BeginStep,
) -> AttentionReport:
    """Run the sweep in that Python, with the environment as it is: its variables select flash-attn's backend."""
    heard: list[tuple[MeasuredImplementation, tuple[AttentionRow, ...]]] = []
    dropped: set[str] = set()
    for name in implementations:
        with step(name):
            said, ended = _hear("attention.py", name, config, python, environ)
        symbols = [row["symbol"] for row in said.get("rows", ()) if row.get("symbol")]
        heard.append((_implementation(name, said, *symbols[:1]), tuple(_rows(name, said, ended, config.seqlens))))
        dropped.update(said.get("dropped") or ())
    return AttentionReport(
        **_circumstances(python),
        dropped_launch_options=tuple(sorted(dropped)) if config.foreign_gpu else None,
        config=config,
        implementations=tuple(implementation for implementation, _ in heard),
        rows=with_ratios([row for _, rows in heard for row in rows]),
    )


def _rows(name: str, said: Mapping[str, Any], ended: str, seqlens: Sequence[int]) -> Iterator[AttentionRow]:
    """A row for each length: what the program said of it, else why it says nothing."""
    by_length = {row["seqlen"]: row for row in said.get("rows", ())}
    for seqlen in seqlens:
        row = by_length.get(seqlen)
        if row is None:
            status, why = said.get("status") or "failed", ended or said.get("reason") or _NO_REPORT
            yield AttentionRow(implementation=name, seqlen=seqlen, status=status, reason=why)
            continue
        yield AttentionRow(
            implementation=name,
            seqlen=seqlen,
            status=row["status"],
            reason=row.get("reason", ""),
            ms=median(row.get("times_ms", ())),
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
    """Train with each implementation in that Python."""
    results, dropped = [], set[str]()
    for name in implementations:
        program = "flash-attn" if name in tuple(Backend) else name
        handed = _environ(name, environ, autotune=config.autotune)
        with step(name):
            said, ended = _hear("training.py", program, config, python, handed)
        results.append(_result(name, said, ended, config))
        dropped.update(said.get("dropped") or ())
    return TrainingReport(
        **_circumstances(python),
        dropped_launch_options=tuple(sorted(dropped)) if config.foreign_gpu else None,
        preset=preset,
        config=config,
        results=tuple(results),
        summary=summarize(results),
    )


def _environ(name: str, environ: Mapping[str, str], *, autotune: bool) -> dict[str, str]:
    """The environment for an implementation: flash-attn's variables are those that it needs, and no other.

    Upstream takes Triton if the first is exactly TRUE; the second is for that backend alone.
    """
    cleared = {variable: value for variable, value in environ.items() if not variable.startswith("FLASH_ATTENTION_")}
    if name == Backend.CK:
        return {**cleared, _ENABLE: "FALSE"}
    if name == Backend.TRITON:
        return {**cleared, _ENABLE: "TRUE", AUTOTUNE_VARIABLE: "TRUE" if autotune else "FALSE"}
    return cleared


def _result(name: str, said: Mapping[str, Any], ended: str, config: TrainingConfig) -> TrainingResult:
    """What a program said, else why it says nothing; and whether what was trained with is what was asked for."""
    symbol = said.get("symbol")
    implementation = _implementation(name, said, symbol)
    if said.get("status") != "measured":
        why = ended or said.get("reason") or _NO_REPORT
        return TrainingResult(implementation=implementation, status=said.get("status", "failed"), reason=why)
    if name in tuple(Backend) and not (symbol or "").startswith(f"{TOLERANCES[Backend(name)].module}."):
        why = f"flash-attn calls {symbol or 'nothing that is known'}, and not {TOLERANCES[Backend(name)].module}"
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


def _implementation(name: str, said: Mapping[str, Any], symbol: str | None = None) -> MeasuredImplementation:
    return MeasuredImplementation(name=name, version=said.get("version"), origin=said.get("origin"), symbol=symbol)


def _hear(
    program: str,
    name: str,
    config: AttentionConfig | TrainingConfig,
    python: TorchPython,
    environ: Mapping[str, str],
) -> tuple[dict[str, Any], str]:
    """Run a program for the implementation `name`: the last that it said as JSON (empty if nothing), and why it ended
    before its end (empty if it did not)."""
    device = "cuda" if python.device else "cpu"  # a GPU of AMD is cuda too
    arguments = [name, device, str(FALLBACK_SOURCES / "src"), config.model_dump_json()]
    done = run([python.python, "-I", "-B", PROGRAMS / program, *arguments], environ=environ)
    for line in reversed(done.stdout.splitlines()):  # libraries print what they like between
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict):
                return said, failure_reason(done) if done.returncode else ""
    return {}, failure_reason(done) if done.returncode else ""


def _circumstances(python: TorchPython) -> dict[str, Any]:
    """What a report says of the factory, the time, the hardware and the software."""
    return {
        "factory": factory_version(),
        "time": datetime.now(timezone.utc).replace(microsecond=0),
        "hardware": as_hardware(python),
        "software": as_software(python),
    }


def median(numbers: Sequence[float]) -> float | None:
    """The one in the middle, or halfway between the two there; None of none."""
    return statistics.median(numbers) if numbers else None


def ratio(one: float | None, other: float | None) -> float | None:
    """`one` in units of `other`; None where one is not known or the other is nothing."""
    return one / other if one is not None and other else None


def with_ratios(rows: Sequence[AttentionRow]) -> tuple[AttentionRow, ...]:
    """The rows, each compared with the one of ``plain`` at its length."""
    plain = {row.seqlen: row for row in rows if row.implementation == "plain"}
    found = []
    for row in rows:
        beside = plain.get(row.seqlen)
        if beside:
            ratios = {"speedup": ratio(beside.ms, row.ms), "memory_ratio": ratio(beside.extra_mib, row.extra_mib)}
        found.append(row.model_copy(update=ratios if beside else {}))
    return tuple(found)


def summarize(results: Sequence[TrainingResult]) -> Summary:
    """FA3 beside FA2."""
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
