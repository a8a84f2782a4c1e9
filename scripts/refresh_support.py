"""Add the new torch releases on PyTorch's ROCm indexes to matrix.yaml; on any error, change nothing.

    .venv/bin/python scripts/refresh_support.py

See docs/how-to/refresh-support.md.
"""

from __future__ import annotations

import argparse
import os

from wheelfactory.commands.options import add_matrix, run_chore
from wheelfactory.matrix.refresh.torch_index import PYTORCH, TorchIndex
from wheelfactory.matrix.refresh.torch_releases import refresh_torch


def main() -> int:
    parser = argparse.ArgumentParser(description="Add new torch releases to the ROCm entries in matrix.yaml.")
    add_matrix(parser)
    parser.add_argument("--index", default=PYTORCH, metavar="URL", help=f"index to read (default: {PYTORCH})")
    options = parser.parse_args()
    return run_chore(lambda: refresh_torch(options.matrix, TorchIndex(options.index, os.environ)))


if __name__ == "__main__":
    raise SystemExit(main())
