"""Writes the pages of docs/reference/ that follow from the source, errors.md and options.md.

.venv/bin/python scripts/reference [--dest DIR] [--package DIR]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from errors_page import MissingCureError, errors_page
from options_page import options_page

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Write the pages; gives the exit code."""
    parser = argparse.ArgumentParser(description="Write the reference pages that follow from the source.")
    parser.add_argument("--dest", type=Path, default=ROOT / "docs/reference", metavar="DIR", help="where to")
    parser.add_argument("--package", type=Path, default=ROOT / "src/wheelfactory", metavar="DIR", help="the source")
    options = parser.parse_args()
    try:
        pages = {"errors.md": errors_page(options.package), "options.md": options_page()}
    except MissingCureError as error:
        print(f"error: these errors do not say what to do:\n{error}", file=sys.stderr)
        print(
            "hint: give them a hint, or a reason in WITHOUT_CURE of scripts/reference/errors_page.py", file=sys.stderr
        )
        return 1
    for name, text in pages.items():
        (options.dest / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
