"""Print the GitHub Actions matrix of matrix.yaml, as ``wheelfactory matrix`` does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

if __name__ == "__main__":
    try:
        import wheelfactory.commands.matrix  # noqa: F401  (imports every dependency, so that a missing one is reported here)
        from wheelfactory.cli import main
    except ModuleNotFoundError as error:
        hint = "run ./factory matrix, which installs its dependencies first"
        print(f"error: missing Python package: {error.name}\nhint: {hint}", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(main(["matrix", *sys.argv[1:]]))
