"""Lock the Python packages of ./factory: write their versions and hashes to requirements/.

    ./factory lock              after a change of pyproject.toml
    ./factory lock --upgrade    take the newest versions that are at least two weeks old

Locked versions stay unless pyproject.toml excludes them. Other arguments go to `uv pip compile`, too. Needs PyPI.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

COOLDOWN = timedelta(days=14)
"""Most malicious releases are found within days, so newer ones are not taken."""

COMPILE = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate"),
    *("--custom-compile-command", "./factory lock"),
    # one file for all platforms and for all Pythons from the oldest on; only packages that have wheels
    *("--universal", "--python-version", "3.10", "--generate-hashes", "--only-binary", ":all:"),
    *("pyproject.toml", "packages/remote_execution/pyproject.toml", "--no-emit-package", "wheelfactory"),
)


def lock(name: str, *options: str) -> bool:
    """Lock the packages of requirements/NAME.txt; return whether it could."""
    command = [*COMPILE, *options, "--output-file", f"requirements/{name}.txt"]
    if subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode == 0:
        return True
    print(f"error: cannot lock requirements/{name}.txt: uv failed, see above", file=sys.stderr)
    print("hint: PyPI must be reachable", file=sys.stderr)
    return False


def main() -> int:
    arguments = sys.argv[1:]
    if "--upgrade" in arguments:
        arguments += ["--exclude-newer", (datetime.now(timezone.utc) - COOLDOWN).isoformat(timespec="seconds")]
    # the largest first, so that a package has the same version in all of them
    if not lock("dev", "--extra", "dev", *arguments):
        return 1
    same = ("--constraint", "requirements/dev.txt")
    with ThreadPoolExecutor() as pool:  # they wait for PyPI
        locked = [
            pool.submit(lock, "docs", "--extra", "docs", "--extra", "verify", *same),
            pool.submit(lock, "check", "--extra", "check", *same),
            pool.submit(lock, "factory", "--extra", "verify", *same),
        ]
    return 0 if all(each.result() for each in locked) else 1


if __name__ == "__main__":
    raise SystemExit(main())
