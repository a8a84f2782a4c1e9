"""A maintainer's chore: torch releases that are new on PyTorch's ROCm indexes go into matrix.yaml, or nothing at all.

    .venv/bin/python scripts/refresh_support.py

See docs/how-to/refresh-support.md.
"""

from __future__ import annotations

import argparse
import os
import sys

import truststore

from wheelfactory.commands.options import add_matrix
from wheelfactory.errors import DONE, FAILED, FactoryError
from wheelfactory.support.describe import lines_of, summary_of
from wheelfactory.support.index import PYTORCH, TorchIndex
from wheelfactory.support.refresh import refresh


def main() -> int:
    parser = argparse.ArgumentParser(description="Refresh the torch releases of the ROCm entries in matrix.yaml.")
    add_matrix(parser)
    parser.add_argument("--index", default=PYTORCH, metavar="URL", help=f"default: {PYTORCH}")
    options = parser.parse_args()
    truststore.inject_into_ssl()  # many networks have an authority of their own
    try:
        findings = refresh(options.matrix, TorchIndex(options.index, os.environ))
    except FactoryError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted: by Ctrl-C\nhint: nothing was changed", file=sys.stderr)
        return FAILED
    for line in lines_of(findings):
        print(line)
    print(summary_of(findings), file=sys.stderr)
    return DONE


if __name__ == "__main__":
    raise SystemExit(main())
