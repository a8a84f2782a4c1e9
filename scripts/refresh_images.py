"""Update the images in matrix.yaml to newer patch releases, and pin their digests; on any error, change nothing.

    .venv/bin/python scripts/refresh_images.py

See docs/how-to/refresh-images.md.
"""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import add_matrix, run_chore
from wheelfactory.matrix.refresh.images import refresh_images
from wheelfactory.matrix.refresh.registry import DOCKER_HUB, Registry


def main() -> int:
    parser = argparse.ArgumentParser(description="Update tags and digests of the images in matrix.yaml.")
    add_matrix(parser)
    parser.add_argument(
        "--registry", default=DOCKER_HUB, metavar="URL", help=f"registry to query (default: {DOCKER_HUB})"
    )
    options = parser.parse_args()
    return run_chore(lambda: refresh_images(options.matrix, Registry(options.registry)))


if __name__ == "__main__":
    raise SystemExit(main())
