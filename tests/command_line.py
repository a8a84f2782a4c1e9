"""A command as a person calls it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from wheelfactory.cli import main


class Shown(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str


Cli: TypeAlias = Callable[..., Shown]
"""Runs a command."""


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Shown:
    """Run a command in this process."""
    code = main([str(argument) for argument in arguments])
    return Shown(code, *capsys.readouterr())
