"""`wheelfactory bench attention`."""

from __future__ import annotations

import argparse
from typing import get_args

from wheelfactory.commands.bench.options import add_output, add_plot, add_python_options, name_list, read_plot_paths
from wheelfactory.commands.options import Environ, add_option, positive_int, print_messages, print_text
from wheelfactory.core.errors import DONE, FAILED, InputError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import Steps
from wheelfactory.gpu.bench.bench_text import attention_text
from wheelfactory.gpu.bench.measure import ATTENTION_IMPLEMENTATIONS, PACKED_ONLY, SEQLENS, measure_attention
from wheelfactory.gpu.bench.plot import plot_attention
from wheelfactory.gpu.bench.programs.call_options import SHORTEST, SOFTCAP, WINDOW
from wheelfactory.gpu.bench.reports import AttentionConfig, AttentionPreset
from wheelfactory.gpu.torch_python import AUTOTUNE_VARIABLE, TorchPython, find_torch_python, require_non_amd_gpu

_BATCH = 2
_PACKED = 64
"""Packed sequences."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_python_options(parser)
    shown = ",".join(map(str, SEQLENS))
    what = (
        f"measure with a window of {WINDOW} keys, with softcap {SOFTCAP:g}, with ALiBi slopes, with gradients "
        "that have the same bits each time (deterministic; implies --backward), or with packed sequences of "
        f"1/{SHORTEST} of the length to the length (varlen) (default: without any of them)"
    )
    add_option(parser, f"--preset {'|'.join(get_args(AttentionPreset))}", what)
    what = f"comma-separated sequence lengths in tokens (default: {shown})"
    add_option(parser, "--seqlens LIST", what, type=_seqlens)
    add_option(parser, "--batch N", f"sequences in a batch (default: {_BATCH}; {_PACKED} with --preset varlen)")
    add_option(parser, "--heads N", "query heads", 8)
    add_option(parser, "--head-dim N", "size of a head", 64)
    add_option(parser, "--kv-heads N", "heads of keys and values; must divide --heads (default: the value of --heads)")
    add_option(parser, "--dtype float16|bfloat16|float32", "dtype of all tensors", "float16")
    add_option(parser, "--causal", "mask later keys", default=True, action=argparse.BooleanOptionalAction)
    add_option(parser, "--backward", "time forward plus backward (default: forward only)")
    what = (
        f"comma-separated subset of {','.join(ATTENTION_IMPLEMENTATIONS)} "
        f"(default: all; {PACKED_ONLY} only with --preset varlen); plain is two products and a softmax"
    )
    add_option(parser, "--implementations LIST", what, type=name_list(ATTENTION_IMPLEMENTATIONS))
    add_output(parser)
    add_plot(parser, "time, TFLOP/s and memory against sequence length")


def _seqlens(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(map(positive_int, text.split(","))))


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Measure, print the table, and write the requested files.

    Returns FAILED if an implementation failed or none was measured. An implementation that is not installed or runs out
    of memory is reported in the table and does not fail the command.
    """
    plots = read_plot_paths(options)
    if options.heads % (options.kv_heads or options.heads):
        groups = f"{options.heads} query heads, {options.kv_heads} heads of keys and values"
        raise InputError("--kv-heads does not divide --heads", groups, "choose a divisor, such as --kv-heads 1")
    python = find_torch_python(options.python, environ)
    if options.non_amd_gpu:
        require_non_amd_gpu(python, environ.get(AUTOTUNE_VARIABLE, ""))
    config = _config(options, python)
    implementations = options.implementations or _implementations(config)
    with Steps(len(implementations)) as steps:
        report = measure_attention(config, implementations, python, environ, steps.step)
    print_text(*attention_text(report))
    failed = any(row.implementation == "flash-attn" and row.status == "failed" for row in report.rows)
    if failed and report.hardware.vendor == "nvidia" and not options.non_amd_gpu:
        print_messages("hint: an AMD Triton wheel runs on this GPU only in test mode: add --non-amd-gpu")
    if options.output_json:
        write_atomic(options.output_json, report.model_dump_json(indent=1).encode() + b"\n")
    plot_attention(report, plots)
    states = {row.status for row in report.rows}
    return FAILED if "failed" in states or "measured" not in states else DONE


def _implementations(config: AttentionConfig) -> tuple[str, ...]:
    """The implementations to measure by default."""
    return tuple(name for name in ATTENTION_IMPLEMENTATIONS if name != PACKED_ONLY or config.preset == "varlen")


def _config(options: argparse.Namespace, python: TorchPython) -> AttentionConfig:
    if options.seqlens is None and not python.gpu.device:
        hint = "choose shorter lengths for the CPU: `wheelfactory bench attention --seqlens 128,256,512`"
        raise InputError("the default sequence lengths need a GPU", f"the torch of {python.python} has none", hint)
    given = {name: getattr(options, name) for name in ("heads", "head_dim", "dtype", "causal", "preset")}
    return AttentionConfig(
        **given,
        seqlens=options.seqlens or SEQLENS,
        batch=options.batch or (_PACKED if options.preset == "varlen" else _BATCH),
        kv_heads=options.kv_heads or options.heads,
        # gradients are what can differ
        backward=options.backward or options.preset == "deterministic",
        foreign_gpu=options.non_amd_gpu,
    )
