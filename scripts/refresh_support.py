"""A maintainer's chore: torch releases that are new on PyTorch's ROCm indexes go into matrix.yaml, or nothing at all.

    .venv/bin/python scripts/refresh_support.py

See docs/how-to/refresh-support.md.
"""

from __future__ import annotations

import argparse
import os

from wheelfactory.commands.chore import run_chore
from wheelfactory.commands.options import add_matrix
from wheelfactory.matrix.refresh.torch_index import PYTORCH, TorchIndex
from wheelfactory.matrix.refresh.torch_releases import refresh_torch


def main() -> int:
    parser = argparse.ArgumentParser(description="Refresh the torch releases of the ROCm entries in matrix.yaml.")
    add_matrix(parser)
    parser.add_argument("--index", default=PYTORCH, metavar="URL", help=f"default: {PYTORCH}")
    options = parser.parse_args()
    return run_chore(lambda: refresh_torch(options.matrix, TorchIndex(options.index, os.environ)))


if __name__ == "__main__":
    raise SystemExit(main())
