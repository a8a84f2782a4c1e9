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

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

# isolated mode (-I) drops the program's folder from sys.path; the test mode is shared with verify/programs
sys.path += [str(Path(__file__).resolve().parents[up] / place) for up, place in ((0, ""), (3, "verify/programs"))]

from implementations import (  # type: ignore[import-not-found]
    LoadedImplementation,
    NotRunError,
    error_line,
    find_backend_symbol,
    is_out_of_memory,
    load_implementation,
)
from non_amd_gpu import drop_amd_launch_options  # type: ignore[import-not-found]  # by the path above, as the next

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

Tensor = Any


def inputs(config: dict[str, Any], seqlen: int, device: str) -> list[Tensor]:
    """Queries, keys, values and the output gradient: the same random numbers for each implementation."""
    numbers = torch.Generator(device).manual_seed(seqlen)
    heads = (config["heads"], config["kv_heads"], config["kv_heads"], config["heads"])
    shapes = [(config["batch"], seqlen, count, config["head_dim"]) for count in heads]
    dtype = getattr(torch, config["dtype"])
    return [torch.randn(shape, generator=numbers, device=device, dtype=torch.float32).to(dtype) for shape in shapes]


def make_call(
    implementation: LoadedImplementation, tensors: Sequence[Tensor], config: dict[str, Any]
) -> Callable[[], Any]:
    """The call to time: forward, or forward and backward. It returns the output and any gradients."""
    queries, keys, values, gradient = tensors
    arguments = (queries, keys, values)
    for argument in arguments:
        argument.requires_grad_(config["backward"])

    def call() -> list[Tensor]:
        output = implementation.function(queries, keys, values, config["causal"])
        return [output, *(torch.autograd.grad(output, arguments, gradient) if config["backward"] else ())]

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


def reference(tensors: Sequence[Tensor], rows: slice, *, causal: bool, backward: bool) -> list[Tensor]:
    """Attention of the queries `rows` of one sequence in float64, as (heads, tokens, head dim).

    With `backward`, also the gradients of these queries, and their share in the gradients of all keys and values.
    """
    queries, keys, values, gradient = (tensor.detach().double().transpose(0, 1) for tensor in tensors)
    groups = queries.shape[0] // keys.shape[0]
    leaves = [tensor.requires_grad_(backward) for tensor in (queries[:, rows].clone(), keys, values)]
    wide = [tensor.repeat_interleave(groups, 0) for tensor in leaves[1:]]
    scores = leaves[0] @ wide[0].transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if causal:
        places = torch.arange(queries.shape[1], device=queries.device)
        scores = scores.masked_fill(places > places[rows, None], -math.inf)
    output = scores.softmax(-1) @ wide[1]
    gradients = torch.autograd.grad(output, leaves, gradient[:, rows]) if backward else []
    return [output.detach(), *gradients]


def greatest_difference(results: Sequence[Tensor], tensors: Sequence[Tensor], *, causal: bool) -> float:
    """The largest difference of any result from float64, computed by blocks of queries."""
    batch, tokens, heads, _ = tensors[0].shape
    step = max(BLOCK // (tokens * heads), 1)
    backward = len(results) > 1
    found: list[Tensor] = []
    for index in range(batch):
        sums: list[Tensor] = []
        for start in range(0, tokens, step):
            rows = slice(start, start + step)
            true = reference([tensor[index] for tensor in tensors], rows, causal=causal, backward=backward)
            # output and dq of a block are final; dk and dv are sums over all blocks
            found += map(greatest, [result[index, rows] for result in results[:2]], true[:2])
            sums = list(map(torch.add, sums, true[2:])) if sums else true[2:]
        found += map(greatest, [result[index] for result in results[2:]], sums)
    return float(torch.stack(found).max())  # unlike Python's max, NaN if any of them is NaN


def greatest(result: Tensor, true: Tensor) -> Tensor:
    """The largest difference of a result (tokens, heads, head dim) from the reference (heads, tokens, head dim)."""
    return (result.detach().transpose(0, 1).double() - true).abs().max()


def measure(implementation: LoadedImplementation, config: dict[str, Any], seqlen: int, device: str) -> dict[str, Any]:
    """Measure one length: times of the batches, memory, difference, and the backend function called."""
    tensors = inputs(config, seqlen, device)
    call = make_call(implementation, tensors, config)
    symbol = find_backend_symbol(implementation, call)
    difference = greatest_difference(call(), tensors, causal=config["causal"])
    if not math.isfinite(difference):
        return {"status": "failed", "reason": "a result is not finite", "symbol": symbol}
    measured = {"times_ms": times(call, device), "extra_mib": extra_mib(call, device), "difference": difference}
    return {"status": "measured", "symbol": symbol, **measured}


def measure_all(implementation: LoadedImplementation, config: dict[str, Any], device: str) -> Iterator[dict[str, Any]]:
    """Measure every length; a failure at one does not stop the others."""
    for seqlen in config["seqlens"]:
        sys.stderr.write(f"{seqlen} tokens\n")  # shows the length if a kernel ends the process
        try:
            row = measure(implementation, config, seqlen, device)
        except Exception as error:
            status = "out of memory" if is_out_of_memory(error) else "failed"
            row = {"status": status, "reason": error_line(error)}
        if device == "cuda":
            torch.cuda.empty_cache()  # cached blocks of this length do not fit the next, longer one
        yield {"seqlen": seqlen, **row}


def main(name: str, device: str, fallback: str, sizes: str) -> None:
    """Measure, and print the results so far after each length."""
    config = json.loads(sizes)
    dropped = drop_amd_launch_options() if config["foreign_gpu"] and name == "flash-attn" else None
    report: dict[str, Any] = {"version": None, "origin": None, "status": "", "reason": "", "dropped": None, "rows": []}
    try:
        implementation = load_implementation(name, device, fallback)
    except Exception as error:
        status, why = ("not run", str(error)) if isinstance(error, NotRunError) else ("failed", error_line(error))
        sys.stdout.write(f"\n{json.dumps({**report, 'status': status, 'reason': why})}\n")
        return
    report |= {name: getattr(implementation, name) for name in ("version", "origin", "aiter")}
    for row in measure_all(implementation, config, device):
        report["rows"].append(row)
        report["dropped"] = None if dropped is None else sorted(dropped)
        sys.stdout.write(f"\n{json.dumps(report)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
