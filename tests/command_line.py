"""Run a command of the factory in this process and capture its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from wheelfactory.cli import main


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Cli: TypeAlias = Callable[..., CommandResult]
"""Runs a command with the given arguments."""


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> CommandResult:
    """Run a command in this process."""
    code = main([str(argument) for argument in arguments])
    return CommandResult(code, *capsys.readouterr())
