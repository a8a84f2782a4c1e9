"""Lock the Python packages of ./factory: write their versions and hashes to requirements/.

    .venv/bin/python scripts/lock_requirements.py              after a change of pyproject.toml
    .venv/bin/python scripts/lock_requirements.py --upgrade    take the newest versions

Locked versions stay unless pyproject.toml excludes them. Other arguments go to `uv pip compile`, too. Needs PyPI.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

COMPILE = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate"),
    *("--custom-compile-command", ".venv/bin/python scripts/lock_requirements.py"),
    # one file for all platforms and for all Pythons from the oldest on; only packages that have wheels
    *("--universal", "--python-version", "3.10", "--generate-hashes", "--only-binary", ":all:"),
    "pyproject.toml",
)


def main() -> int:
    arguments = sys.argv[1:]
    # the largest first, so that a package has the same version in all of them
    for name, options in (
        ("dev", ("--extra", "dev", *arguments)),
        ("docs", ("--extra", "docs", "--extra", "verify", "--constraint", "requirements/dev.txt")),
        ("check", ("--extra", "check", "--constraint", "requirements/dev.txt")),
        ("factory", ("--extra", "verify", "--constraint", "requirements/dev.txt")),
    ):
        command = [*COMPILE, *options, "--output-file", f"requirements/{name}.txt"]
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        if done.returncode:
            print(f"error: cannot lock requirements/{name}.txt: uv failed, see above", file=sys.stderr)
            print("hint: ./factory lint installs uv; PyPI must be reachable", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
