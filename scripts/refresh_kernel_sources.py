"""Write the digest of each release's kernel sources into matrix.yaml; on any error, change nothing.

    .venv/bin/python scripts/refresh_kernel_sources.py

Downloads the sources of releases that are not in the cache. See docs/reference/matrix.md.
"""

from __future__ import annotations

import argparse
import os

from wheelfactory.commands.options import add_cache, add_matrix, prepare_cache, run_chore
from wheelfactory.kernels.refresh_sources import refresh_kernel_sources


def main() -> int:
    parser = argparse.ArgumentParser(description="Write kernel-sources of each flash-attn release in matrix.yaml.")
    add_matrix(parser)
    add_cache(parser)
    options = parser.parse_args()
    cache = prepare_cache(options, os.environ)
    return run_chore(lambda: refresh_kernel_sources(options.matrix, cache, os.environ))


if __name__ == "__main__":
    raise SystemExit(main())
