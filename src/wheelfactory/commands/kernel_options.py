"""Options of the commands that compile or link kernels; apart from `options`, so that the matrix needs no network."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from wheelfactory.commands.options import directory
from wheelfactory.kernels.handover import Wanted


def add_kernels(parser: argparse.ArgumentParser) -> None:
    """``--kernels DIR`` and ``--budget HOURS``"""
    parser.add_argument(
        "--kernels",
        type=Path,
        metavar="DIR",
        help="take compiled kernels from the archives there (see `wheelfactory kernels`)",
    )
    add_budget(parser)


def wanted_of(options: argparse.Namespace, started: float) -> Wanted:
    """Where kernels may come from and how long it may take, counted from `started`, in seconds since 1970."""
    return Wanted(
        archives=directory(options.kernels) if options.kernels else None, deadline=deadline_of(options, started)
    )


def deadline_of(options: argparse.Namespace, started: float) -> float | None:
    """When the time of ``--budget`` is up, in seconds since 1970."""
    return started + options.budget * 3600 if options.budget else None


def add_budget(parser: argparse.ArgumentParser) -> None:
    """``--budget HOURS``"""
    parser.add_argument(
        "--budget",
        type=amount,
        metavar="HOURS",
        help="stop before that much time is up; exit code 6 then says: run the same command again",
    )


def amount(text: str) -> float:
    """A number above zero, as an argument's type."""
    if not re.fullmatch("[0-9]{1,6}([.][0-9]{1,6})?", text, re.ASCII) or not float(text):
        raise argparse.ArgumentTypeError(f"not an amount above zero: {text!r}")
    return float(text)
