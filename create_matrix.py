"""Print the GitHub Actions matrix of matrix.yaml; the same command as ``wheelfactory matrix``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

if __name__ == "__main__":
    try:
        import wheelfactory.commands.matrix  # noqa: F401  (all it needs, so that a missing package is told here)
        from wheelfactory.cli import main
    except ModuleNotFoundError as error:
        hint = "./factory matrix does the same in an environment of its own"
        print(f"error: missing Python package: {error.name}\nhint: {hint}", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(main(["matrix", *sys.argv[1:]]))
