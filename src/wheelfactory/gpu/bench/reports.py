"""The reports of the benchmarks, written as JSON and read back; light to import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AwareDatetime, Field, FiniteFloat, RootModel

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.gpu.validate.report import Hardware, Software

Dtype: TypeAlias = Literal["float16", "bfloat16", "float32"]

MeasurementStatus: TypeAlias = Literal["measured", "not run", "out of memory", "failed"]
"""What became of a measurement. ``not run`` is what cannot be here, such as an implementation that is not installed;
``failed`` is what should have run."""

# numbers are finite everywhere: what is not is no JSON, and what could not be measured is null


class MeasuredImplementation(FrozenModel):
    """What was measured, and where it is from."""

    name: str
    version: str | None = None
    origin: str | None = None
    """``installed``, ``checkout``, or ``torch``; None if it could not be had."""
    symbol: str | None = None
    """The backend's forward function that was called, such as ``flash_attn_2_cuda.fwd``; None without a backend."""


class AttentionConfig(FrozenModel):
    """What is asked of every implementation; sizes are those of flash-attn's arguments."""

    seqlens: tuple[int, ...]
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: Dtype
    causal: bool
    backward: bool
    """Whether a call is forward and backward; else it is forward."""
    foreign_gpu: bool
    """Whether launch options for AMD are dropped, so that Triton's kernels for it run on the GPU of another vendor."""


class AttentionRow(FrozenModel):
    """One implementation at one sequence length."""

    implementation: str
    seqlen: int
    status: MeasurementStatus
    reason: str = ""
    """Why it is not measured."""
    ms: FiniteFloat | None = None
    """Of a call: the median of the batches."""
    extra_mib: FiniteFloat | None = None
    """What a call needs beside its inputs, the output included; None on the CPU, where it is not measured."""
    difference: FiniteFloat | None = None
    """The greatest of any result from the one in float64."""
    speedup: FiniteFloat | None = None
    """The time of ``plain`` over the time of this one; None where one of both is not measured."""
    memory_ratio: FiniteFloat | None = None
    """The extra memory of ``plain`` over that of this one."""


class _Benchmark(FrozenModel):
    factory: str
    """The version of the factory."""
    time: AwareDatetime
    """UTC."""
    hardware: Hardware
    software: Software
    dropped_launch_options: tuple[str, ...] | None = None
    """Those that were dropped in the test mode for the GPU of another vendor; None if this is not that."""


class AttentionReport(_Benchmark):
    """A sweep of sequence lengths."""

    format: Literal["wheelfactory-bench-attention/1"] = "wheelfactory-bench-attention/1"
    config: AttentionConfig
    implementations: tuple[MeasuredImplementation, ...]
    rows: tuple[AttentionRow, ...]


class TrainingConfig(FrozenModel):
    """The transformer and its steps."""

    batch_size: int
    seq_len: int
    d_model: int
    n_heads: int
    n_layers: int
    warmup_steps: int
    timed_steps: int
    dtype: Dtype
    autotune: bool
    """Whether the Triton backend looks for its best settings in the warm-up."""
    foreign_gpu: bool
    """As in `AttentionConfig`."""


class TrainingResult(FrozenModel):
    """The training with one implementation."""

    implementation: MeasuredImplementation
    status: MeasurementStatus
    reason: str = ""
    """Why it is not measured."""
    step_times_ms: tuple[FiniteFloat, ...] = ()
    """Of the timed steps, in their order."""
    median_step_ms: FiniteFloat | None = None
    steps_per_s: FiniteFloat | None = None
    tokens_per_s: FiniteFloat | None = None
    peak_mib: FiniteFloat | None = None
    """The most that torch held in the timed steps; None on the CPU, where it is not measured."""
    loss_first: FiniteFloat | None = None
    """Before the first step of the warm-up: of the same weights and data for every implementation."""
    loss_last: FiniteFloat | None = None


class Summary(FrozenModel):
    """FA3 beside FA2: names that are used for flash-attn's Triton and CK backends on ROCm. Upstream has no such FA3."""

    fa2: Literal["ck"] = "ck"
    fa3: Literal["triton"] = "triton"
    fa3_speedup: FiniteFloat | None = None
    """The median step of FA2 over that of FA3; None unless both were measured, as are the two below."""
    fa3_memory_ratio: FiniteFloat | None = None
    """The peak of FA3 over that of FA2."""
    fa3_memory_delta_mib: FiniteFloat | None = None
    """The peak of FA3 less that of FA2."""


class TrainingReport(_Benchmark):
    """Training with several implementations."""

    format: Literal["wheelfactory-bench-training/1"] = "wheelfactory-bench-training/1"
    preset: str | None
    """What the sizes were taken from that were not given; None if all were."""
    config: TrainingConfig
    results: tuple[TrainingResult, ...]
    summary: Summary


class _Report(RootModel[Annotated[AttentionReport | TrainingReport, Field(discriminator="format")]]):
    """A file of either."""


_HINT = "name what `wheelfactory bench` wrote with --output-json"


def read_report(path: Path) -> AttentionReport | TrainingReport:
    """The report in a file. Raises `InputError` if there is none."""
    data = read_file(path, InputError("cannot read the report", str(path), _HINT))
    return parse_model(_Report, data, InputError("not a report of a benchmark", str(path), _HINT)).root


def read_training_report(path: Path) -> TrainingReport:
    """The report of a training in a file. Raises `InputError` if there is none."""
    report = read_report(path)
    if not isinstance(report, TrainingReport):
        raise InputError("not a report of a training", f"{path} is of {report.format}", "name one of `bench training`")
    return report
