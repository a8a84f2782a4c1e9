"""`wheelfactory inspect`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from wheelfactory.commands.options import add_option, print_results, print_text
from wheelfactory.core.errors import DONE
from wheelfactory.wheel.inspection import describe, inspect


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory inspect dist/*.whl --json"
    help_text = "wheel, ELF file, .dist-info folder, or name of a project that python3 has installed"
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=help_text)
    add_option(parser, "--json", "print one JSON object per file, including symbols")


def execute(options: argparse.Namespace) -> int:
    """Print the facts of each file."""
    for path in options.files:
        facts = inspect(path, options.environ)
        if options.json:
            print_results(json.dumps(facts.as_json()))
        else:
            print_text(*describe(facts))
    return DONE
