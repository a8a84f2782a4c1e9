"""A Python is found only if it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pythons import find_python

MINOR = 99


def command(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / f"python3.{MINOR}"
    path.write_text(text)
    path.chmod(0o755)
    return path


SHIM = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"
PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'


def test_a_shim_on_path_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tmp_path / "shims", SHIM)
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find_python(MINOR) is None


@pytest.mark.parametrize("kept", ["behind", f"pyenv/versions/3.{MINOR}.1/bin"])
def test_the_one_behind_it_or_kept_by_pyenv_does(kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tmp_path / "shims", SHIM)
    python = command(tmp_path / kept, PYTHON)
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'behind'}:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find_python(MINOR) == python
