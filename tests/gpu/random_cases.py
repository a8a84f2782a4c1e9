"""Compare random attention calls of an installed package with float64, and print the counts as JSON.

    python random_cases.py flash_attn|flash_attention_amd cpu|cuda COUNT SEED [--non-amd-gpu] [--worker N OF]
        [--seconds S]

The cases are those of the numeric gates with drawn lengths, layouts, options and dtypes, and have the gates' bounds. A
call that the package refuses is counted by its reason, cut at the option.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "src/wheelfactory/verify/programs"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "src"))

from attention_cases import AttentionCase  # type: ignore[import-not-found]
from check_numbers import accept_cpu_tensors, measure_errors  # type: ignore[import-not-found]
from without_amd_gpu import drop_amd_launch_options  # type: ignore[import-not-found]

LAYOUTS = ("rows", "rows", "heads", "packed")
BOUNDS = {"output": 2.0, "log-sum-exp": 3.0, "dq": 5.0, "dk": 5.0, "dv": 5.0, "memory": 1.0}
"""Multiples of the error of rounding: the gates', and more for gradients, as the worst of thousands of calls counts.

A call of few elements can have next to none, so a bound is larger by the rounding of 0.3, as in upstream's tests.
"""


def draw_case(draw: random.Random, name: str) -> AttentionCase:
    """Draw a dense, packed or cached call, with at most one option."""
    kind = draw.choice(["dense", "dense", "packed", "cached"])
    count, groups = draw.randint(1, 4), draw.choice([1, 2, 3])
    common = {
        "dim": draw.choice([16, 24, 32, 40, 64, 80, 96, 128, 192, 256]),
        "groups": groups,
        "heads": groups * draw.choice([1, 1, 2, 4]),
        "causal": draw.random() < 0.5,
        "sums": draw.random() < 0.5,
        "scale": draw.choice([None, None, 0.1]),
        **draw_option(draw, kind),
    }
    if kind == "cached":
        rows = draw.choice([64, 128, 255, 256, 511])
        rows = 512 if common.get("pages") else rows
        appended = draw.choice([0, 0, 1, 5]) if not common.get("rotary") else 3
        keys = tuple(draw.choice([appended, draw.randint(appended, rows), rows]) for _ in range(count))
        if common.get("padding"):
            keys = tuple(max(length, 8 + appended) for length in keys)
        queries = (appended or draw.choice([1, 1, 3]),) * count
        return AttentionCase(name, queries, keys, cache=rows, appended=appended, **common)
    if kind == "packed":
        queries = tuple(draw.choice([0, 1, draw.randint(1, 200)]) for _ in range(count))
        keys = tuple(draw.choice([0, 1, draw.randint(1, 200)]) for _ in range(count))
        if not sum(queries) or not sum(keys):
            queries, keys = (*queries, 17), (*keys, 33)
        return AttentionCase(name, queries, keys, packed=True, **common)
    queries, keys = (draw.choice([1, draw.randint(1, 200), 256]),) * count, (draw.randint(1, 300),) * count
    layouts = (*(draw.choice(LAYOUTS) for _ in range(3)), draw.choice(["rows", "rows", "expanded"]))
    shift = draw.choice([0.0, 0.0, 0.0, 1.9])
    return AttentionCase(name, queries, keys, layouts=layouts, shift=shift, **common)


def draw_option(draw: random.Random, kind: str) -> dict[str, object]:
    """Draw an option of a kind of call; most calls have none."""
    window = (draw.choice([-1, 0, 8, 500]), draw.choice([-1, 0, 5]))
    options: list[dict[str, object]] = [{"window": window}, {"softcap": 5.0}, {"alibi": True}]
    if kind == "cached":
        options += [{"pages": True}, {"padding": 3}, {"rotary": True}, {"reordered": True}]
    return draw.choice([{}, {}, {}, {}, *options])


def main(options: argparse.Namespace) -> None:
    """Run the cases of one worker: every `of`-th of the sequence."""
    if options.device == "cpu" and options.module == "flash_attn":
        use_emulator()
    if options.non_amd_gpu:
        drop_amd_launch_options()
    draw, (worker, workers) = random.Random(options.seed), options.worker  # noqa: S311
    end = time.monotonic() + options.seconds
    counts: Counter[str] = Counter()
    wrong: list[dict[str, object]] = []
    for number in range(options.count):
        case = draw_case(draw, f"case {number} of seed {options.seed}")
        dtype = draw.choice(["float16", "bfloat16"])
        if number % workers != worker or time.monotonic() > end:
            continue
        try:
            errors = measure_errors(
                options.module, case, getattr(torch, dtype), options.device, backward=case.has_gradients
            )
        except NotImplementedError as refused:
            counts[f"refused: {str(refused).partition('=')[0][:90]}"] += 1
            continue
        except Exception as failed:
            errors = {"exception": str(failed)}
        far = [name for name, found in errors.items() if isinstance(found, str) or not is_right(name, dtype, *found)]
        counts["wrong" if far else "right"] += 1
        wrong += [{"case": repr(case), "dtype": dtype, "errors": {name: errors[name] for name in far}}] * bool(far)
    sys.stdout.write(f"\n{json.dumps({'counts': counts, 'wrong': wrong})}\n")


def use_emulator() -> None:
    """Run the kernels on an emulator of gfx942, with tensors on the CPU."""
    from triton.runtime import driver  # type: ignore[import-not-found]

    from wheelfactory.emulator.triton_driver import EmulatorDriver

    driver.set_active(EmulatorDriver("gfx942"))
    if find_spec("aiter"):
        from without_amd_gpu import stand_in_gpu

        stand_in_gpu("gfx942")
    accept_cpu_tensors()


def is_right(name: str, dtype: str, error: float, unit: float) -> bool:
    """Whether an error is within its bound; NaN is not."""
    return error <= BOUNDS[name] * unit + 0.3 * float(torch.finfo(getattr(torch, dtype)).eps)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=["flash_attn", "flash_attention_amd"])
    parser.add_argument("device", choices=["cpu", "cuda"])
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--non-amd-gpu", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after this time")
    parser.add_argument("--worker", type=int, nargs=2, default=(0, 1), metavar=("N", "OF"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(parse(sys.argv[1:]))
