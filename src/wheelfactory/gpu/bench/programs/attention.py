"""Times one implementation of attention over a sweep of sequence lengths; prints JSON.

    python -I -B attention.py NAME cpu|cuda FALLBACK CONFIG

NAME is one of `implementations`, FALLBACK the folder of the fallback's sources, CONFIG the sizes as JSON.
After each length, one line with all results so far is printed, so that they survive a kernel that ends the process.

Time: after a warm-up, which compiles kernels, batches of calls are timed between two device events. A batch takes some
ten milliseconds, far above the resolution of events, and the next call is launched while the device computes the one
before. A call that is slower to launch than to compute costs its launch time, as in real programs. On the CPU,
wall-clock time replaces the events.

Memory: the peak of torch's allocator during one call, minus the level before it, output included. Memory that a kernel
allocates without torch is not counted; the CPU is not measured.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

# isolated mode (-I) drops the program's folder from sys.path; what enters flash-attn is shared with verify/programs
sys.path += [str(Path(__file__).resolve().parents[up] / place) for up, place in ((0, ""), (3, "verify/programs"))]

from call_options import (  # type: ignore[import-not-found]  # by the path above, as the next
    SOFTCAP,
    WINDOW,
    CallOptions,
    draw_lengths,
    visible_pairs,
)
from implementations import (  # type: ignore[import-not-found]
    LoadedImplementation,
    failed,
    find_backend_symbol,
    run_program,
)
from torch_attention import changed_scores  # type: ignore[import-not-found]

WARM_UP = 3
"""Number of calls."""
BATCH_MS = 10.0
BATCHES = 15
FEWEST_BATCHES = 3
# limit for all batches of a length, unless `FEWEST_BATCHES` take longer
BUDGET_MS = 1500.0
# limit for one batch
MOST_CALLS = 1000
BLOCK = 1 << 25
"""Scores that the reference computes at once, 8 bytes each: 256 MiB."""
REPEATED = 2
"""Further calls whose results must have the same bits, if deterministic."""

Tensor = Any


def make_options(config: dict[str, Any], seqlen: int, device: str) -> CallOptions:
    """The options of the preset; `seqlen` is the longest of packed sequences."""
    causal, preset, heads = config["causal"], config["preset"], config["heads"]
    if preset == "window":
        return CallOptions(causal, window=(WINDOW, 0 if causal else WINDOW))
    if preset == "softcap":
        return CallOptions(causal, softcap=SOFTCAP)
    if preset == "alibi":
        slopes = [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
        return CallOptions(causal, slopes=torch.tensor(slopes, dtype=torch.float32, device=device))
    if preset == "varlen":
        lengths = draw_lengths(seqlen, config["batch"])
        starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
        return CallOptions(causal, starts=starts, lengths=lengths)
    return CallOptions(causal, deterministic=preset == "deterministic")


def inputs(config: dict[str, Any], options: CallOptions, seqlen: int, device: str) -> list[Tensor]:
    """Queries, keys, values and the output gradient: the same random numbers for each implementation."""
    numbers = torch.Generator(device).manual_seed(seqlen)
    tokens = (sum(options.lengths),) if options.lengths else (config["batch"], seqlen)
    heads = (config["heads"], config["kv_heads"], config["kv_heads"], config["heads"])
    shapes = [(*tokens, count, config["head_dim"]) for count in heads]
    dtype = getattr(torch, config["dtype"])
    return [torch.randn(shape, generator=numbers, device=device, dtype=torch.float32).to(dtype) for shape in shapes]


def make_call(
    implementation: LoadedImplementation, tensors: Sequence[Tensor], options: CallOptions, *, backward: bool
) -> Callable[[], Any]:
    """The call to time: forward, or forward and backward. It returns the output and any gradients."""
    queries, keys, values, gradient = tensors
    arguments = (queries, keys, values)
    for argument in arguments:
        argument.requires_grad_(backward)

    def call() -> list[Tensor]:
        output = implementation.function(queries, keys, values, options)
        return [output, *(torch.autograd.grad(output, arguments, gradient) if backward else ())]

    return call


def milliseconds(call: Callable[[], Any], count: int, device: str) -> float:
    """Time `count` calls, one after the other."""
    if device == "cpu":
        started = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - started) * 1000
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def times(call: Callable[[], Any], device: str) -> list[float]:
    """Milliseconds per call, one number for each batch."""
    milliseconds(call, WARM_UP, device)
    one = max(milliseconds(call, WARM_UP, device) / WARM_UP, 1e-6)
    count = min(max(math.ceil(BATCH_MS / one), 1), MOST_CALLS)
    batches = min(max(int(BUDGET_MS / (one * count)), FEWEST_BATCHES), BATCHES)
    return [milliseconds(call, count, device) / count for _ in range(batches)]


def extra_mib(call: Callable[[], Any], device: str) -> float | None:
    """Peak memory of a call beyond its inputs; None on the CPU."""
    if device == "cpu":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    del results
    return float(peak - before) / 2**20


def reference(tensors: Sequence[Tensor], rows: slice, options: CallOptions, *, backward: bool) -> list[Tensor]:
    """Attention of the queries `rows` of one sequence in float64, as (heads, tokens, head dim).

    With `backward`, also the gradients of these queries, and their share in the gradients of all keys and values.
    """
    queries, keys, values, gradient = (tensor.detach().double().transpose(0, 1) for tensor in tensors)
    groups = queries.shape[0] // keys.shape[0]
    leaves = [tensor.requires_grad_(backward) for tensor in (queries[:, rows].clone(), keys, values)]
    wide = [tensor.repeat_interleave(groups, 0) for tensor in leaves[1:]]
    scores = leaves[0] @ wide[0].transpose(-2, -1) / math.sqrt(queries.shape[-1])
    output = changed_scores(scores, options, rows.start).softmax(-1) @ wide[1]
    gradients = torch.autograd.grad(output, leaves, gradient[:, rows]) if backward else []
    return [output.detach(), *gradients]


def greatest_difference(results: Sequence[Tensor], tensors: Sequence[Tensor], options: CallOptions) -> float:
    """The largest difference of any result from float64, computed by sequences and blocks of queries."""
    count, backward = len(tensors), len(results) > 1
    found: list[Tensor] = []
    for sequence in zip(*(sequences(tensor, options) for tensor in (*tensors, *results)), strict=True):
        given, computed = sequence[:count], sequence[count:]
        tokens, heads, _ = given[0].shape
        step = max(BLOCK // (tokens * heads), 1)
        sums: list[Tensor] = []
        for start in range(0, tokens, step):
            rows = slice(start, start + step)
            true = reference(given, rows, options, backward=backward)
            # output and dq of a block are final; dk and dv are sums over all blocks
            found += map(greatest, [result[rows] for result in computed[:2]], true[:2])
            sums = list(map(torch.add, sums, true[2:])) if sums else true[2:]
        found += map(greatest, computed[2:], sums)
    return float(torch.stack(found).max())  # unlike Python's max, NaN if any of them is NaN


def sequences(tensor: Tensor, options: CallOptions) -> Sequence[Tensor]:
    """The sequences of a batch or of packed ones, (tokens, heads, head dim) each."""
    return list(tensor.split(options.lengths) if options.lengths else tensor)


def greatest(result: Tensor, true: Tensor) -> Tensor:
    """The largest difference of a result (tokens, heads, head dim) from the reference (heads, tokens, head dim)."""
    return (result.detach().transpose(0, 1).double() - true).abs().max()


def measure(implementation: LoadedImplementation, config: dict[str, Any], seqlen: int, device: str) -> dict[str, Any]:
    """Measure one length: times of the batches, memory, difference, and the backend function called."""
    options = make_options(config, seqlen, device)
    tensors = inputs(config, options, seqlen, device)
    call = make_call(implementation, tensors, options, backward=config["backward"])
    with implementation.context(options):
        symbol = find_backend_symbol(implementation, call)
        results = call()
        repeats = not options.deterministic or all(all(map(torch.equal, results, call())) for _ in range(REPEATED))
    difference = greatest_difference(results, tensors, options)
    del results
    if not math.isfinite(difference):
        return {"status": "failed", "reason": "a result is not finite", "symbol": symbol}
    if not repeats:
        return {"status": "failed", "reason": "the gradients of two calls differ", "symbol": symbol}
    with implementation.context(options):
        measured = {"times_ms": times(call, device), "extra_mib": extra_mib(call, device), "difference": difference}
    pairs = visible_pairs(options, options.lengths or (seqlen,) * config["batch"])
    return {"status": "measured", "symbol": symbol, "pairs": pairs, **measured}


def measure_all(implementation: LoadedImplementation, config: dict[str, Any], device: str) -> Iterator[dict[str, Any]]:
    """Measure every length; a failure at one does not stop the others."""
    for seqlen in config["seqlens"]:
        sys.stderr.write(f"{seqlen} tokens\n")  # shows the length if a kernel ends the process
        try:
            row = measure(implementation, config, seqlen, device)
        except Exception as error:
            row = failed(error)
        if device == "cuda":
            torch.cuda.empty_cache()  # cached blocks of this length do not fit the next, longer one
        yield {"seqlen": seqlen, **row}


def sweep(
    implementation: LoadedImplementation, config: dict[str, Any], device: str
) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """The results so far, after each length."""
    rows = []
    for row in measure_all(implementation, config, device):
        rows.append(row)
        yield {"rows": rows}


if __name__ == "__main__":
    run_program(sweep, *sys.argv[1:])
