"""`./factory` lists every command; the Python environment is a stub, so nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wheelfactory.cli import COMMANDS
from wheelfactory.core.files import ROOT

PYTHON = f"""#!/bin/sh
PYTHONPATH={ROOT}/src exec {sys.executable} "$@"
"""


def mark_installed(checkout: Path, lock: str) -> None:
    """Tell `./factory` that the packages of a lock file are installed, and what is on the path."""
    path = f"{checkout}/src\n{checkout}/packages/remote_execution/src\n"
    (checkout / f".venv/installed-{lock}").write_text(path)


@pytest.fixture
def factory(tmp_path: Path) -> Path:
    """A checkout whose environment is up to date."""
    shutil.copy(ROOT / "factory", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    mark_installed(tmp_path, "factory")
    return tmp_path / "factory"


def test_without_a_command_it_lists_all_commands(factory: Path) -> None:
    done = subprocess.run([factory], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    words = {line.split()[0].rstrip(":") for line in done.stdout.splitlines() if line.startswith("  ")}
    assert {*COMMANDS, "lint", "test", "docs"} <= words


def test_other_words_are_passed_to_wheelfactory(factory: Path) -> None:
    done = subprocess.run([factory, "build", "x"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: not a cell: x\nhint: ")


def test_hints_and_help_name_commands_as_they_were_called(factory: Path) -> None:
    wrong = subprocess.run([factory, "matrix", "--only", "x"], capture_output=True, text=True)
    assert f"`{factory} plan --all` lists them" in wrong.stderr
    text = subprocess.run([factory, "verify", "--help"], capture_output=True, text=True).stdout
    assert f"usage: {factory} verify" in text
    assert "example: " in text
    assert "wheelfactory verify" not in text


def test_the_check_of_a_site_has_a_lock_file_of_its_own(factory: Path) -> None:
    """With uv and sigstore, which no other command needs."""
    (factory.parent / ".venv/installed-factory").unlink()
    mark_installed(factory.parent, "check")
    done = subprocess.run([factory, "ci", "check", "nowhere"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no such directory: nowhere\nhint: ")


@pytest.fixture
def calls(factory: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Returns the tools that a call starts; stubs of them stand in the environment."""
    log = factory.parent / "calls"
    folder = factory.parent / ".venv/bin"
    for name in ("ruff", "mypy", "yamllint", "shellcheck", "pytest"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n')
        (folder / name).chmod(0o755)
    mark_installed(factory.parent, "dev")

    def call(*arguments: str) -> list[str]:
        log.unlink(missing_ok=True)
        subprocess.run([factory, *arguments], check=True)
        return log.read_text().splitlines()

    return call


def test_quick_tests_come_after_style_only_and_all_tests_after_what_lint_checks_of_texts(
    calls: Callable[..., list[str]],
) -> None:
    """A test checks the types."""
    expected = ["ruff check", "ruff format --check", "pytest --numprocesses=3 -m not slow tests/matrix"]
    assert calls("test", "--quick", "tests/matrix") == expected
    *texts, last = calls("test", "-x")
    assert last == "pytest --numprocesses=3 -x"
    assert [line.split()[0] for line in texts] == ["ruff", "ruff", "yamllint", "shellcheck"]
    assert calls("lint") == [*texts, "mypy"]
