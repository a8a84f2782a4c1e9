"""Find Pythons of this machine by minor version. Only those that run count: pyenv's shims on PATH may not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


def find_python(minor: int) -> Path | None:
    """Find a Python 3 of that minor version: the first on PATH that runs, else one of pyenv; None if there is none."""
    return next((path for path in _named(minor) if _runs(path)), None)


def _named(minor: int) -> Iterator[Path]:
    name = f"python3.{minor}"
    yield from (Path(folder, name) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/3.{minor}.*/bin/{name}"), reverse=True)


def _runs(path: Path) -> bool:
    try:
        return subprocess.run([path, "-c", ""], capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
