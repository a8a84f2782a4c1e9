"""`wheelfactory bench training`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.bench.options import add_output, add_python_options, name_list
from wheelfactory.commands.options import Environ, add_option, print_text
from wheelfactory.core.errors import DONE, FAILED, InputError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import Steps
from wheelfactory.gpu.bench.bench_text import change_text, training_text
from wheelfactory.gpu.bench.compare import compare_training, require_common_implementation, require_comparable
from wheelfactory.gpu.bench.measure import PRESET_FIELDS, PRESETS, TRAINING_IMPLEMENTATIONS, measure_training
from wheelfactory.gpu.bench.reports import TrainingConfig, read_training_report
from wheelfactory.gpu.torch_python import TorchPython, find_torch_python, require_non_amd_gpu

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


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_python_options(parser)
    what = "sizes where no option sets one (mi300x if omitted; `default` is smaller)"
    add_option(parser, f"--preset {'|'.join(PRESETS)}", what)
    for name in PRESET_FIELDS:
        presets = ", ".join(f"{sizes[name]} in {preset}" for preset, sizes in PRESETS.items())
        add_option(parser, f"{_option(name)} N", f"{_MEANINGS[name]} ({presets})")
    add_option(parser, "--dtype bfloat16|float16", "dtype of matrix products; weights stay float32", "bfloat16")
    what = f"comma-separated subset of {','.join(TRAINING_IMPLEMENTATIONS)} (default: {','.join(_BACKENDS)})"
    add_option(parser, "--implementations LIST", what, _BACKENDS, type=name_list(TRAINING_IMPLEMENTATIONS))
    add_option(parser, "--autotune", "let the Triton backend search for its fastest settings")
    add_output(parser)
    add_option(parser, "--compare FILE", "compare with this earlier report; exit code 1 if a result is worse")
    add_option(parser, "--threshold PERCENT", "with --compare: accept results that are up to PERCENT worse", 5.0)


def _option(size: str) -> str:
    return f"--{size.replace('_', '-')}"


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Train, print the table, write the report, and compare.

    Returns FAILED if a training failed, none was measured, or a result is worse than before. A backend that the wheel
    lacks is reported in the table and does not fail the command.
    """
    old = read_training_report(options.compare) if options.compare else None
    python = find_torch_python(options.python, environ)
    if options.non_amd_gpu:
        require_non_amd_gpu(python, "true" if options.autotune else "")
    config = _config(options, python)
    if old:
        require_comparable(str(options.compare), old, config, python.gpu)
        require_common_implementation(old, options.implementations)
    with Steps(len(options.implementations)) as steps:
        report = measure_training(
            config, options.implementations, python, environ, steps.step, preset=_preset(options, python)
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
    missing = [_option(name) for name in PRESET_FIELDS if getattr(options, name) is None]
    if not missing:
        return None
    if not python.gpu.device:
        example = " ".join(f"{_option(name)} {size}" for name, size in zip(PRESET_FIELDS, _SMALL, strict=True))
        which = f"the torch of {python.python} has none, and these sizes are missing: {', '.join(missing)}"
        hint = f"set all of them: wheelfactory bench training --implementations fallback,sdpa {example}"
        raise InputError("the presets need a GPU", which, hint)
    return options.preset or next(iter(PRESETS))


def _config(options: argparse.Namespace, python: TorchPython) -> TrainingConfig:
    preset = _preset(options, python)
    given = {name: getattr(options, name) for name in PRESET_FIELDS}
    sizes = {name: size or PRESETS[preset or ""][name] for name, size in given.items()}
    if sizes["d_model"] % sizes["n_heads"]:
        which = f"--d-model {sizes['d_model']} and --n-heads {sizes['n_heads']}"
        raise InputError("--n-heads does not divide --d-model", which, "choose a divisor of --d-model")
    return TrainingConfig(**sizes, dtype=options.dtype, autotune=options.autotune, foreign_gpu=options.non_amd_gpu)
