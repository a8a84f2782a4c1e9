"""`wheelfactory inspect`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from wheelfactory.commands.options import Environ, show
from wheelfactory.errors import DONE
from wheelfactory.inspect import describe, inspect_wheel


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--json", action="store_true", help="one JSON object a wheel")


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print the facts of each wheel."""
    for path in options.wheels:
        facts = inspect_wheel(path)
        lines = [json.dumps(facts.as_json())] if options.json else describe(facts)
        for line in lines:
            show(line)
    return DONE
