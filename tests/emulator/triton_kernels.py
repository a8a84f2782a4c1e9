# mypy: ignore-errors
"""A program for a Python with torch and Triton: launch kernels on the emulator, and print what they gave as JSON.

python -I -B triton_kernels.py SRC ARCH...

Each arch has a process of its own, because Triton keeps the kernels of one target; torch is imported once.
"""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from typing import Any

sys.path.append(sys.argv[1])

import torch
import triton
import triton.language as tl
from triton.runtime import driver

from wheelfactory.emulator.triton_driver import EmulatorDriver


@triton.jit
def add(x, y, output, count, bound, block: tl.constexpr):
    """With `bound` over `count` it stores beyond the end."""
    places = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.load(x + places, mask=places < count) + tl.load(y + places, mask=places < count)
    tl.store(output + places, total, mask=places < bound)


@triton.jit
def softmax(x, output, columns: tl.constexpr):
    """Reductions through registers and local memory."""
    row, places = tl.program_id(0), tl.arange(0, columns)
    values = tl.load(x + row * columns + places)
    shares = tl.exp(values - tl.max(values, 0))
    tl.store(output + row * columns + places, shares / tl.sum(shares, 0))


@triton.jit
def multiply(a, b, output, rows: tl.constexpr, depth: tl.constexpr):
    """A matrix product with the matrix instructions of the arch."""
    row, k = tl.arange(0, rows), tl.arange(0, depth)
    left = tl.load(a + row[:, None] * depth + k[None, :])
    right = tl.load(b + k[:, None] * rows + row[None, :])
    tl.store(output + row[:, None] * rows + row[None, :], tl.dot(left, right, input_precision="ieee"))


@triton.jit
def count(x, output, block: tl.constexpr):
    """Atomic additions from all groups."""
    places = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(output + tl.load(x + places), 1)


def describe(emulator: EmulatorDriver) -> dict[str, Any]:
    launch = emulator.launches.pop()
    findings = [str(finding) for finding in launch.execution.findings]
    rate = launch.execution.instructions / max(launch.seconds, 1e-3)
    return {"findings": findings, "local": launch.kernel.local, "rate": rate}


def run(emulator: EmulatorDriver) -> dict[str, Any]:
    torch.manual_seed(0)
    x, y, total = torch.randn(1000), torch.randn(1000), torch.zeros(1000)
    add[(4,)](x, y, total, 1000, 1000, 256)
    found = {"add": describe(emulator) | {"right": torch.equal(total, x + y)}}
    add[(4,)](x, y, total, 1000, 1003, 256)
    found["beyond"] = describe(emulator)
    rows, shares = torch.randn(3, 512), torch.zeros(3, 512)
    softmax[(3,)](rows, shares, 512)
    error = (shares - rows.double().softmax(1)).abs().max()
    found["softmax"] = describe(emulator) | {"right": bool(error < 1e-8)}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        a, b, product = torch.randn(32, 64).to(dtype), torch.randn(64, 32).to(dtype), torch.zeros(32, 32)
        multiply[(1,)](a, b, product, 32, 64)
        error = (product - a.double() @ b.double()).abs().max()
        found[f"multiply {dtype}"] = describe(emulator) | {"right": bool(error < 1e-5)}
    places, counts = torch.arange(512, dtype=torch.int32) % 7, torch.zeros(7, dtype=torch.int32)
    count[(2,)](places, counts, 256)
    found["count"] = describe(emulator) | {"right": torch.equal(counts.long(), torch.bincount(places))}
    return found


def run_orders(arch: str) -> dict[str, Any]:
    emulator = EmulatorDriver(arch)
    driver.set_active(emulator)
    found = {}
    for order in ("forward", "reversed", "3"):
        emulator.order = order
        found[order] = run(emulator)
    return found


def main(archs: list[str]) -> None:
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        found = dict(zip(archs, pool.map(run_orders, archs, chunksize=1), strict=True))
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[2:])
