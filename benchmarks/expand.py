"""What it costs to expand a matrix of 100,000 combinations, beside a bare loop over the same axes.

    python benchmarks/expand.py

Three runs of each in one process, the fastest of each kept: `expand` and `github_matrix` (rules, cells, the check for
wheels of the same name, JSON) against ``for _ in itertools.product(...)``. The ratio is the figure to watch, because
both sides slow down together on a busy machine. matrix.yaml has 3,600 combinations.

Measured, CPython 3.11.7, two shared cores with tests beside it, November 2026: 100,000 combinations, 25,800 cells:
0.97 to 0.98 s (10 us a combination), bare loop 0.004 s, ratio 263 to 268.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.select import github_matrix

RUNS = 3
SOURCE = "made for this benchmark"
SIZES = "1 MB to 1000 MB"
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]
RELEASES, TORCHES, ROCMS = 20, 25, 20
PYTHONS = [f"3.{minor}" for minor in range(10, 15)]
ON_ONE_INDEX = 12


def synthetic_matrix() -> Matrix:
    """20 releases x 5 Pythons x 25 torches x 20 ROCms x 2 backends; an index has about half of the torches."""
    torches = {f"2.{minor}.0": torch(minor) for minor in range(TORCHES)}
    return Matrix.model_validate(
        {
            "backend": ["ck", "triton"],
            "python": PYTHONS,
            "flash-attn": {f"2.8.{patch}": release() for patch in range(RELEASES)},
            "torch": torches,
            "rocm": {f"{6 + number // 10}.{number % 10}": rocm([*torches], number) for number in range(ROCMS)},
            "exclude": [{"backend": "ck", "torch": ">=2.24", "reason": SOURCE, "source": SOURCE}],
        }
    )


def release() -> dict[str, Any]:
    """A flash-attn that refuses the oldest Triton."""
    return {
        "sdist": {"file": "flash_attn.tar.gz", "sha256": "0" * 64},
        "python": ">=3.9",
        "ck": {"archs": ARCHS[:3], "wheel-size": SIZES, "source": SOURCE},
        "triton": {"archs": ARCHS, "window": ">=3.2", "wheel-size": SIZES, "source": SOURCE},
        "source": SOURCE,
    }


def torch(minor: int) -> dict[str, Any]:
    """A torch that brings the Triton of its minor version and, if it is old, has no build for the newest Python."""
    return {
        "python": PYTHONS if minor > TORCHES // 2 else PYTHONS[:-1],
        "triton": f"3.{minor}.0",
        "triton-package": "triton-rocm",
        "cxx11-abi": True,
        "platform": "manylinux_2_28_x86_64",
        "source": SOURCE,
    }


def rocm(torches: list[str], number: int) -> dict[str, Any]:
    """A ROCm whose index starts with another torch than that of the ROCm before it."""
    image = {
        "tag": "rocm/pytorch:x",
        "distribution": "ubuntu24.04",
        "glibc": "2.39",
        "python-path": "/opt/venv/bin/python",
        "rocm-path": "/opt/rocm",
        "source": SOURCE,
    }
    start = number * (TORCHES - ON_ONE_INDEX) // ROCMS
    return {
        "torch": torches[start : start + ON_ONE_INDEX],
        "index": "https://download.pytorch.org/whl/rocm",
        "archs": ARCHS,
        "images": [{**image, "python": python, "torch": "2.0.0"} for python in PYTHONS],
        "source": SOURCE,
    }


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""

    def once() -> float:
        start = perf_counter()
        work()
        return perf_counter() - start

    return min(once() for _ in range(RUNS))


def main() -> None:
    """Print combinations, cells, seconds and the ratio."""
    matrix = synthetic_matrix()
    axes = (matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm, matrix.backend)

    def bare_loop() -> None:
        for _ in product(*axes):
            pass

    expansion = expand(matrix)
    combinations = sum(map(len, expansion.pythons.values())) + len(expansion.excluded)
    ours = fastest(lambda: github_matrix(matrix, expand(matrix).cells, shards=True))
    loop = fastest(bare_loop)
    print(f"{combinations:,} combinations, {len(expansion.cells):,} cells")
    print(f"expand and JSON  {ours:8.3f} s  ({ours / combinations * 1e6:.1f} us a combination)")
    print(f"bare loop        {loop:8.3f} s")
    print(f"ratio            {ours / loop:8.0f}")


if __name__ == "__main__":
    main()
