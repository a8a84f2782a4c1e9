"""The generator's filter reaches exactly the commands that it is meant for, on any Python of an image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pythons import find_python
from wheelfactory.kernels.generator_commands import FilteredCommand, filter_environ

COMMAND = ("ck/generate.py", "-d", "fwd", "--output_dir", "build")
ADDED = [*COMMAND, "--filter", "*_lse_*"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a generator that prints its arguments, and a setup.py that starts it as upstream's does."""
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck/generate.py").write_text("import json, sys; print(json.dumps(sys.argv))\n")
    (tmp_path / "setup.py").write_text(
        "import subprocess, sys\nprint(sys.argv)\nsubprocess.run([sys.executable, *sys.argv[1:]], check=True)\n"
    )
    return tmp_path


def start(root: Path, *arguments: str, python: str | Path = sys.executable, **environ: str) -> str:
    """What a Python prints that starts with the filter."""
    hook = filter_environ(root / "python", [FilteredCommand(COMMAND, "*_lse_*")])
    command = [python, *arguments]
    done = subprocess.run(command, cwd=root, env={**os.environ, **hook, **environ}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_filter_is_added_to_the_command_that_setup_py_starts(root: Path) -> None:
    setup, generator = start(root, "setup.py", *COMMAND).splitlines()
    assert setup == str(["setup.py", *COMMAND])
    assert json.loads(generator) == ADDED


@pytest.mark.parametrize("minor", [9, 10, 12, 13])
def test_it_works_on_other_pythons(root: Path, minor: int) -> None:
    python = find_python(minor)
    if python is None:
        pytest.skip(f"needs a Python 3.{minor}")
    assert json.loads(start(root, *COMMAND, python=python)) == ADDED


@pytest.mark.parametrize(
    "arguments",
    [
        (*COMMAND[:2], "bwd", *COMMAND[3:]),
        (*COMMAND, "--receipt", "2"),
        COMMAND[:-2],
        ("./ck/generate.py", *COMMAND[1:]),
    ],
)
def test_any_other_command_is_unchanged(root: Path, arguments: tuple[str, ...]) -> None:
    assert json.loads(start(root, *arguments)) == list(arguments)


def test_the_folder_is_not_on_the_path_of_modules(root: Path) -> None:
    assert str(root / "python") not in start(root, "-c", "import sys; print(sys.path)")


def test_a_hidden_sitecustomize_still_runs(root: Path) -> None:
    (root / "image").mkdir()
    (root / "image/sitecustomize.py").write_text("print('of the image')\n")
    path = f"{root / 'python'}{os.pathsep}{root / 'image'}"
    assert start(root, "-c", "print('script')", PYTHONPATH=path) == "of the image\nscript\n"
