"""A build accepts the stub of torch as its release: real build modules, and no other modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stub_torch import find_other_python, real_modules

OTHER = "3.10" if sys.version_info[1] != 10 else "3.11"


def test_modules_that_are_not_those_of_the_release_are_refused(tmp_path: Path) -> None:
    changed = tmp_path / "stub-torch-2.11.0/torch/utils/cpp_extension.py"
    changed.parent.mkdir(parents=True)
    changed.write_text("ROCM_HOME = None\n")
    with pytest.raises(ValueError, match=r"stub-torch-2\.11\.0: expected sha256 3c337a8d.*, found "):
        real_modules(tmp_path, "2.11.0")


@pytest.mark.parametrize(
    ("script", "usable"),
    [
        ("echo 'pyenv: python: command not found' >&2; exit 127", False),
        ("echo", False),
        ('echo "$0"', True),
    ],
    ids=["not chosen", "another implementation", "usable"],
)
def test_another_python_is_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, usable: bool
) -> None:
    python = tmp_path / f"versions/{OTHER}.1/bin/python{OTHER}"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert find_other_python() == (python if usable else None)
