"""The benchmark reports and their JSON files, and what repeated timings in them say. Cheap to import."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import AwareDatetime, FiniteFloat

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.gpu.validation_report import Hardware, Software

Dtype: TypeAlias = Literal["float16", "bfloat16", "float32"]

AttentionPreset: TypeAlias = Literal["window", "softcap", "alibi", "deterministic", "varlen"]
"""An option of attention to measure; `bench.programs.call_options` has the values."""

MeasurementStatus: TypeAlias = Literal["measured", "not run", "out of memory", "failed"]
"""``not run``: not possible on this machine, for example not installed. ``failed``: possible, but it did not work."""

# every number is a FiniteFloat: JSON has no NaN or infinity; what could not be measured is null


class MeasuredImplementation(FrozenModel):
    """An implementation that was measured, and where it comes from."""

    name: str
    version: str | None = None
    origin: str | None = None
    """``installed``, ``checkout`` or ``torch``; None if it could not be loaded."""
    symbol: str | None = None
    """The backend's forward function, such as ``flash_attn_2_cuda.fwd``; None without a backend."""
    aiter: str | None = None
    """The version of the installed aiter if the function is in it."""


class AttentionConfig(FrozenModel):
    """The sizes and options of a sweep, named as flash-attn's arguments."""

    seqlens: tuple[int, ...]
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: Dtype
    causal: bool
    backward: bool
    """Whether a call includes the backward pass."""
    preset: AttentionPreset | None = None
    """With ``varlen``, `batch` is the number of packed sequences and `seqlens` are the longest lengths."""
    # the key of published reports, so it keeps its older spelling
    foreign_gpu: bool
    """Whether AMD launch options are dropped, so that the Triton kernels run on a non-AMD GPU."""


class AttentionRow(FrozenModel):
    """One implementation at one sequence length."""

    implementation: str
    seqlen: int
    """With the preset ``varlen``: of the longest sequence."""
    status: MeasurementStatus
    reason: str = ""
    """Why it was not measured."""
    ms: FiniteFloat | None = None
    """Time of a call: the median over the repetitions."""
    p10_ms: FiniteFloat | None = None
    p90_ms: FiniteFloat | None = None
    repetitions: int | None = None
    """How many batches of calls were timed."""
    tflops: FiniteFloat | None = None
    """TFLOP/s by `attention_tflops`."""
    extra_mib: FiniteFloat | None = None
    """Peak memory of a call beyond its inputs, output included; not measured on the CPU."""
    difference: FiniteFloat | None = None
    """The largest difference of any result from float64."""
    speedup: FiniteFloat | None = None
    """Time of ``plain`` divided by this time; None unless both were measured and both are steady."""
    memory_ratio: FiniteFloat | None = None
    """Extra memory of ``plain`` divided by this extra memory."""


class _Benchmark(FrozenModel):
    factory: str
    """The version of the factory."""
    time: AwareDatetime
    """UTC."""
    hardware: Hardware
    software: Software
    dropped_launch_options: tuple[str, ...] | None = None
    """AMD launch options that the test mode for non-AMD GPUs dropped; None outside this mode."""


class AttentionReport(_Benchmark):
    """A sweep over sequence lengths."""

    format: Literal["wheelfactory-bench-attention/2"] = "wheelfactory-bench-attention/2"
    cpu: str | None = None
    """The name of the processor, which launches the kernels of a GPU too; None if the kernel gives none."""
    config: AttentionConfig
    implementations: tuple[MeasuredImplementation, ...]
    rows: tuple[AttentionRow, ...]


class TrainingConfig(FrozenModel):
    """The transformer to train, and the number of steps."""

    batch_size: int
    seq_len: int
    d_model: int
    n_heads: int
    n_layers: int
    warmup_steps: int
    timed_steps: int
    dtype: Dtype
    autotune: bool
    """Whether the Triton backend tunes its kernels during the warm-up."""
    foreign_gpu: bool
    """As in `AttentionConfig`."""


class TrainingResult(FrozenModel):
    """The result of training with one implementation."""

    implementation: MeasuredImplementation
    status: MeasurementStatus
    reason: str = ""
    """Why it was not measured."""
    step_times_ms: tuple[FiniteFloat, ...] = ()
    """One time for each timed step, in order."""
    median_step_ms: FiniteFloat | None = None
    steps_per_s: FiniteFloat | None = None
    tokens_per_s: FiniteFloat | None = None
    peak_mib: FiniteFloat | None = None
    """Peak memory of torch during the timed steps; not measured on the CPU."""
    loss_first: FiniteFloat | None = None
    """Before the first warm-up step, with the same weights and data for every implementation."""
    loss_last: FiniteFloat | None = None


class Summary(FrozenModel):
    """FA3 compared with FA2: on ROCm, names for flash-attn's Triton and CK backends. Upstream has no such FA3."""

    fa2: Literal["ck"] = "ck"
    fa3: Literal["triton"] = "triton"
    fa3_speedup: FiniteFloat | None = None
    """Median step of FA2 divided by FA3's. This and the next two are None unless both were measured."""
    fa3_memory_ratio: FiniteFloat | None = None
    """Peak memory of FA3 divided by FA2's."""
    fa3_memory_delta_mib: FiniteFloat | None = None
    """Peak memory of FA3 minus FA2's."""


class TrainingReport(_Benchmark):
    """Training with several implementations."""

    format: Literal["wheelfactory-bench-training/1"] = "wheelfactory-bench-training/1"
    preset: str | None
    """The preset for sizes without an option; None if every size had one."""
    config: TrainingConfig
    results: tuple[TrainingResult, ...]
    summary: Summary


def read_training_report(path: Path) -> TrainingReport:
    """Read a training report. Raises `InputError` for an unreadable file, and for any other."""
    hint = "name a file that `wheelfactory bench training --output-json FILE` wrote"
    data = read_file(path, InputError("cannot read the report", str(path), hint))
    return parse_model(TrainingReport, data, InputError("not a training report", str(path), hint))


NOISE_LIMIT = 0.2
"""The largest spread with which a time is compared with another. A choice: 17.8, 1.1 and 20.2 ms of one call on a busy
CPU once gave a speed-up of 61.82."""


def median(numbers: Sequence[float]) -> float | None:
    """The median; None for an empty sequence."""
    return statistics.median(numbers) if numbers else None


def percentiles(numbers: Sequence[float]) -> tuple[float | None, float | None]:
    """The 10th and the 90th percentile, interpolated; None for an empty sequence."""
    if len(numbers) < 2:
        return median(numbers), median(numbers)
    tenths = statistics.quantiles(numbers, n=10, method="inclusive")
    return tenths[0], tenths[-1]


def spread(row: AttentionRow) -> float | None:
    """How far p10 and p90 are apart, as a share of the median; None if that is unknown."""
    if row.p10_ms is None or row.p90_ms is None or not row.ms:
        return None
    return (row.p90_ms - row.p10_ms) / row.ms


def is_steady(row: AttentionRow) -> bool:
    """Whether the time of a row may be compared with another: its spread is known and within `NOISE_LIMIT`."""
    found = spread(row)
    return found is not None and found <= NOISE_LIMIT


def attention_tflops(config: AttentionConfig, pairs: float | None, ms: float | None) -> float | None:
    """TFLOP/s of a call that took `ms` milliseconds; None without a time or without `pairs`.

    `pairs` are the pairs of a query and a visible key in all sequences; half of all if causal. Counted as flash-attn's
    own benchmarks do: two products of the forward pass, and five more for the backward pass.
    """
    if not ms or not pairs:
        return None
    forward = 4 * config.heads * config.head_dim * pairs
    return forward * (3.5 if config.backward else 1) / (ms * 1e9)
