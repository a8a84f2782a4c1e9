"""A command as a person calls it, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from wheelfactory.cli import main


class Shown(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Shown:
    """Run a command in this process."""
    code = main([str(argument) for argument in arguments])
    return Shown(code, *capsys.readouterr())
