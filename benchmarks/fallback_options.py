"""Compare the options of flash-attention-amd with torch's own functions, and with an earlier flash-attention-amd.

    PYTHON benchmarks/fallback_options.py [--device cuda] [--presets none window ...] [--lengths 128 1024 4096 16384]
        [--dtype float16] [--before FOLDER] [--results FILE]

PYTHON needs torch, not the factory. The calls are those of `wheelfactory bench attention --preset`: causal, batch 2 (64
packed sequences), 8 heads of 64. torch's own function is SDPA without an option and with deterministic gradients,
`varlen_attn` for packed sequences, and FlexAttention for the rest; --before names the folder of an earlier package.
All are timed in turn in one process, because short calls of two processes can differ by a third. Prints medians in
milliseconds, the microseconds that Python needs for a call (launch), and the ratios of the present package's time and
memory to the others'. --results keeps one JSON object for each line. Takes a few minutes on a GPU, most of it in
torch's compiler; on a CPU choose short lengths.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "src/wheelfactory/gpu/bench/programs"))

import attention  # type: ignore[import-not-found]  # a program of the benchmark, by the path above, as the next
from call_options import NotRunError  # type: ignore[import-not-found]
from implementations import LoadedImplementation, load_implementation  # type: ignore[import-not-found]

PRESENT = Path(__file__).resolve().parents[1] / "packages/flash_attention_amd/src"
TORCHS = {
    "none": "sdpa",
    "deterministic": "sdpa",
    "window": "flex",
    "softcap": "flex",
    "alibi": "flex",
    "varlen": "varlen",
}
"""torch's own function for each preset, and for none."""
PACKED = range(1024, 4097)
"""The lengths with which the preset varlen is measured: its 64 sequences take many times the memory of two."""


@dataclass(frozen=True)
class Figures:
    """What calls of one implementation took."""

    ms: float
    launch_us: float
    mib: float | None
    """None on a CPU."""


def load_fallback(folder: Path, device: str) -> LoadedImplementation:
    """Load the package in `folder`, also after another one, which loses its operators: torch has each name once."""
    operators = sys.modules.get("flash_attention_amd.operators")
    if operators is not None:
        operators.LIBRARY._destroy()
    for name in [name for name in sys.modules if name.partition(".")[0] == "flash_attention_amd"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        return load_implementation("fallback", device, str(folder))
    finally:
        sys.path.remove(str(folder))


def measure(
    implementations: Mapping[str, LoadedImplementation], config: Mapping[str, Any], seqlen: int, device: str
) -> dict[str, Figures]:
    """Time the implementations in turn; without those that cannot compute this."""
    options = attention.make_options(config, seqlen, device)
    tensors = attention.inputs(config, options, seqlen, device)
    calls: dict[str, Callable[[], Any]] = {}
    counts: dict[str, int] = {}
    for name, implementation in implementations.items():
        call = attention.make_call(implementation, tensors, options, backward=config["backward"])
        try:
            with implementation.context(options):
                attention.milliseconds(call, attention.WARM_UP, device)
                one = attention.milliseconds(call, attention.WARM_UP, device) / attention.WARM_UP
        except NotRunError as error:
            sys.stderr.write(f"{config['preset']}, {seqlen} tokens: {name} not run: {error}\n")
            continue
        calls[name], counts[name] = call, max(1, min(int(attention.BATCH_MS / one), attention.MOST_CALLS))
    times: dict[str, list[float]] = {name: [] for name in calls}
    launches: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(attention.BATCHES):
        for name, call in calls.items():
            with implementations[name].context(options):
                times[name].append(attention.milliseconds(call, counts[name], device) / counts[name])
                launches[name].append(launch(call, counts[name], device))
    memory = {name: attention.extra_mib(call, device) for name, call in calls.items()}
    return {name: Figures(median(times[name]), median(launches[name]), memory[name]) for name in calls}


def launch(call: Callable[[], Any], count: int, device: str) -> float:
    """The microseconds until a call returns, of `count` calls; a GPU may still compute then."""
    before = time.perf_counter()
    for _ in range(count):
        call()
    took = time.perf_counter() - before
    if device == "cuda":
        torch.cuda.synchronize()
    return took / count * 1e6


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The figures of each preset, pass and length."""
    present = load_fallback(PRESENT, options.device)
    before = {"before": load_fallback(options.before, options.device)} if options.before else {}
    for preset in options.presets:
        name = TORCHS[preset]
        every = {"torch": load_implementation(name, options.device, ""), "fallback": present, **before}
        for backward in (True,) if preset == "deterministic" else (False, True):
            for seqlen in options.lengths:
                if preset == "varlen" and seqlen not in PACKED:
                    continue
                sizes = {"batch": 64 if preset == "varlen" else 2, "heads": 8, "kv_heads": 8, "head_dim": 64}
                config = {**sizes, "dtype": options.dtype, "causal": True, "preset": preset, "backward": backward}
                figures = measure(every, config, seqlen, options.device)
                found = {name: asdict(figure) for name, figure in figures.items()}
                yield {"preset": preset, "torch": name, "backward": backward, "seqlen": seqlen, "figures": found}


def line(row: Mapping[str, Any]) -> str:
    """A row of the table: times, launch times, and ratios to torch's function and to the earlier package."""
    figures: Mapping[str, Mapping[str, float | None]] = row["figures"]

    def number(name: str, figure: str) -> float | None:
        return figures[name][figure] if name in figures else None

    def ratio(figure: str, other: str) -> str:
        one, two = number("fallback", figure), number(other, figure)
        return "-" if one is None or not two else f"{one / two:.2f}"

    cells = [row["preset"], "both" if row["backward"] else "forward", str(row["seqlen"]), row["torch"]]
    for figure in ("ms", "launch_us"):
        for name in ("fallback", "torch", "before"):
            found = number(name, figure)
            cells.append("-" if found is None else f"{found:.4g}")
    cells += [ratio("ms", "torch"), ratio("mib", "torch"), ratio("launch_us", "torch"), ratio("ms", "before")]
    return " ".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True))


COLUMNS = (
    *(("preset", 13), ("pass", 7), ("tokens", 6), ("torch", 6)),
    *(("ms", 8), ("torch", 8), ("before", 8), ("launch", 7), ("torch", 7), ("before", 7)),
    *(("x torch", 7), ("x MiB", 6), ("x launch", 8), ("x before", 8)),
)
"""The titles and widths of the table."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--presets", nargs="+", choices=TORCHS, default=list(TORCHS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 1024, 4096, 16384])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    sys.stdout.write(f"{name}, torch {torch.__version__}, {options.dtype}\n")
    sys.stdout.write(" ".join(title.rjust(width) for title, width in COLUMNS) + "\n")
    for row in rows(options):
        sys.stdout.write(line(row) + "\n")
        sys.stdout.flush()
        if options.results:
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
