"""A maintainer's chore: newer patch releases and digests for the images of matrix.yaml, or nothing at all.

    .venv/bin/python scripts/refresh_images.py

See docs/how-to/refresh-images.md.
"""

from __future__ import annotations

import argparse
import sys

import truststore

from wheelfactory.commands.options import add_matrix
from wheelfactory.errors import DONE, FAILED, FactoryError
from wheelfactory.images.describe import lines_of, summary_of
from wheelfactory.images.refresh import refresh
from wheelfactory.images.registry import DOCKER_HUB, Registry


def main() -> int:
    parser = argparse.ArgumentParser(description="Refresh tags and digests of the images in matrix.yaml.")
    add_matrix(parser)
    parser.add_argument("--registry", default=DOCKER_HUB, metavar="URL", help=f"default: {DOCKER_HUB}")
    options = parser.parse_args()
    truststore.inject_into_ssl()  # many networks have an authority of their own
    try:
        findings = refresh(options.matrix, Registry(options.registry))
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
