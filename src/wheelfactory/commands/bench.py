"""`wheelfactory bench`: time attention, train a small transformer, and `bench trend`, which compares the reports."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import get_args

from wheelfactory.commands.options import add_option, positive_int, print_messages, print_text
from wheelfactory.core.errors import DONE, FAILED, InputError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import Steps
from wheelfactory.gpu.bench.bench_text import attention_text, change_text, training_text, trend_text
from wheelfactory.gpu.bench.compare import (
    compare_training,
    require_common_implementation,
    require_comparable,
    trend_points,
)
from wheelfactory.gpu.bench.measure import (
    ATTENTION_IMPLEMENTATIONS,
    PACKED_ONLY,
    PRESET_FIELDS,
    PRESETS,
    SEQLENS,
    TRAINING_IMPLEMENTATIONS,
    measure_attention,
    measure_training,
)
from wheelfactory.gpu.bench.plot import SUFFIXES, plot_attention, plot_trend, require_matplotlib
from wheelfactory.gpu.bench.programs.call_options import SHORTEST, SOFTCAP, WINDOW
from wheelfactory.gpu.bench.reports import AttentionConfig, AttentionPreset, TrainingConfig, read_training_report
from wheelfactory.gpu.torch_python import AUTOTUNE_VARIABLE, TorchPython, find_torch_python, require_non_amd_gpu


def _add_python_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--python PYTHON`` and ``--non-amd-gpu``."""
    add_option(parser, "--python PYTHON", "benchmark the torch of this interpreter (default: the active environment)")
    what = "test mode: drop AMD launch options, so that Triton kernels run on another vendor's GPU"
    add_option(parser, "--non-amd-gpu", what)


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output-json FILE``."""
    add_option(parser, "--output-json FILE", "write the report as JSON", type=_parse_output_path)


def _add_plot(parser: argparse.ArgumentParser, plotted: str) -> None:
    """Add ``--plot FILE``, which can be repeated; `plotted` names the content for the help text."""
    what = f"plot {plotted} into FILE (.png or .svg); repeat it for both formats"
    add_option(parser, "--plot FILE", what, [], type=_plot_file, action="append")


def _read_plot_paths(options: argparse.Namespace) -> list[Path]:
    """Return the paths of ``--plot``. Raises `InputError` if there are any and matplotlib is missing."""
    paths: list[Path] = options.plot
    if paths:
        require_matplotlib()
    return paths


def _parse_output_path(text: str) -> Path:
    """Check that a file can be written, before hours of measuring. Raises `argparse.ArgumentTypeError` if not."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"is a directory: {text!r}")
    # missing parents are created when the file is written, so check the nearest existing parent
    parent = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise argparse.ArgumentTypeError(f"cannot write in {str(parent)!r}: {text!r}")
    return path


def _plot_file(text: str) -> Path:
    if Path(text).suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"not the name of a {' or '.join(SUFFIXES)} file: {text!r}")
    return _parse_output_path(text)


def _name_list(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Return an argument type that parses a comma-separated list of known names and drops repeated ones."""

    def names(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(text.split(",")))
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"not one of {', '.join(known)}: {name!r}")
        return found

    return names


_BATCH = 2
_PACKED = 64
"""Packed sequences."""


def add_attention(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench attention`."""
    _add_python_options(parser)
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
    add_option(parser, "--implementations LIST", what, type=_name_list(ATTENTION_IMPLEMENTATIONS))
    _add_output(parser)
    _add_plot(parser, "time, TFLOP/s and memory against sequence length")


def _seqlens(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(map(positive_int, text.split(","))))


def execute_attention(options: argparse.Namespace) -> int:
    """Measure, print the table, and write the requested files.

    Returns FAILED if an implementation failed or none was measured. An implementation that is not installed or runs out
    of memory is reported in the table and does not fail the command.
    """
    plots = _read_plot_paths(options)
    if options.heads % (options.kv_heads or options.heads):
        groups = f"{options.heads} query heads, {options.kv_heads} heads of keys and values"
        raise InputError("--kv-heads does not divide --heads", groups, "choose a divisor, such as --kv-heads 1")
    python = find_torch_python(options.python, options.environ)
    if options.non_amd_gpu:
        require_non_amd_gpu(python, options.environ.get(AUTOTUNE_VARIABLE, ""))
    config = _attention_config(options, python)
    implementations = options.implementations or _implementations(config)
    with Steps(len(implementations)) as steps:
        report = measure_attention(config, implementations, python, options.environ, steps.step)
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


def _attention_config(options: argparse.Namespace, python: TorchPython) -> AttentionConfig:
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


_BACKENDS = ("ck", "triton")
_MEANINGS = {
    "batch_size": "sequences in a batch",
    "seq_len": "tokens in a sequence",
    "d_model": "width of the model",
    "n_heads": "attention heads of a layer",
    "n_layers": "transformer layers",
    "warmup_steps": "untimed steps at the start",
    "timed_steps": "timed steps",
}
# sizes that a CPU trains in seconds, in the order of `SIZES`
_SMALL = (1, 128, 64, 2, 2, 1, 5)


def add_training(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench training`."""
    _add_python_options(parser)
    what = "sizes where no option sets one (mi300x if omitted; `default` is smaller)"
    add_option(parser, f"--preset {'|'.join(PRESETS)}", what)
    for name in PRESET_FIELDS:
        presets = ", ".join(f"{sizes[name]} in {preset}" for preset, sizes in PRESETS.items())
        add_option(parser, f"{_size_option(name)} N", f"{_MEANINGS[name]} ({presets})")
    add_option(parser, "--dtype bfloat16|float16", "dtype of matrix products; weights stay float32", "bfloat16")
    what = f"comma-separated subset of {','.join(TRAINING_IMPLEMENTATIONS)} (default: {','.join(_BACKENDS)})"
    add_option(parser, "--implementations LIST", what, _BACKENDS, type=_name_list(TRAINING_IMPLEMENTATIONS))
    add_option(parser, "--autotune", "let the Triton backend search for its fastest settings")
    _add_output(parser)
    add_option(parser, "--compare FILE", "compare with this earlier report; exit code 1 if a result is worse")
    add_option(parser, "--threshold PERCENT", "with --compare: accept results that are up to PERCENT worse", 5.0)


def _size_option(size: str) -> str:
    return f"--{size.replace('_', '-')}"


def execute_training(options: argparse.Namespace) -> int:
    """Train, print the table, write the report, and compare.

    Returns FAILED if a training failed, none was measured, or a result is worse than before. A backend that the wheel
    lacks is reported in the table and does not fail the command.
    """
    old = read_training_report(options.compare) if options.compare else None
    python = find_torch_python(options.python, options.environ)
    if options.non_amd_gpu:
        require_non_amd_gpu(python, "true" if options.autotune else "")
    config = _training_config(options, python)
    if old:
        require_comparable(str(options.compare), old, config, python.gpu)
        require_common_implementation(old, options.implementations)
    with Steps(len(options.implementations)) as steps:
        report = measure_training(
            config, options.implementations, python, options.environ, steps.step, preset=_preset(options, python)
        )
    print_text(*training_text(report))
    if options.output_json:
        write_atomic(options.output_json, report.model_dump_json(indent=1).encode() + b"\n")
    worse = False
    if old:
        changes = compare_training(old, report, options.threshold)
        print_text("", *change_text(f"{options.compare} of {old.time:%Y-%m-%d}", changes, options.threshold))
        worse = any(change.is_worse for change in changes)
    states = {result.status for result in report.results}
    return FAILED if worse or "failed" in states or "measured" not in states else DONE


def _preset(options: argparse.Namespace, python: TorchPython) -> str | None:
    """Return the preset for missing sizes, or None. Raises `InputError` on the CPU, where a preset takes hours."""
    missing = [_size_option(name) for name in PRESET_FIELDS if getattr(options, name) is None]
    if not missing:
        return None
    if not python.gpu.device:
        example = " ".join(f"{_size_option(name)} {size}" for name, size in zip(PRESET_FIELDS, _SMALL, strict=True))
        which = f"the torch of {python.python} has none, and these sizes are missing: {', '.join(missing)}"
        hint = f"set all of them: wheelfactory bench training --implementations fallback,sdpa {example}"
        raise InputError("the presets need a GPU", which, hint)
    return options.preset or next(iter(PRESETS))


def _training_config(options: argparse.Namespace, python: TorchPython) -> TrainingConfig:
    preset = _preset(options, python)
    given = {name: getattr(options, name) for name in PRESET_FIELDS}
    sizes = {name: size or PRESETS[preset or ""][name] for name, size in given.items()}
    if sizes["d_model"] % sizes["n_heads"]:
        which = f"--d-model {sizes['d_model']} and --n-heads {sizes['n_heads']}"
        raise InputError("--n-heads does not divide --d-model", which, "choose a divisor of --d-model")
    return TrainingConfig(**sizes, dtype=options.dtype, autotune=options.autotune, foreign_gpu=options.non_amd_gpu)


def add_trend(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench trend`."""
    what = "reports written by `bench training --output-json`, in any order"
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help=what)
    _add_plot(parser, "the median step time against the date")


def execute_trend(options: argparse.Namespace) -> int:
    """Print the table and draw the plot."""
    plots = _read_plot_paths(options)
    reports = {str(path): read_training_report(path) for path in options.reports}
    points = trend_points(reports)
    print_text(*trend_text(points))
    plot_trend(points, next(iter(reports.values())), plots)
    return DONE
