"""`wheelfactory inspect`."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from wheelfactory.commands.options import Environ, Subparsers, show
from wheelfactory.errors import DONE
from wheelfactory.inspect import describe, inspect_wheel


def add(subparsers: Subparsers) -> None:
    """The command's options."""
    parser = subparsers.add_parser("inspect", help="print the facts of any wheel")
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--json", action="store_true", help="one JSON object a wheel")
    parser.set_defaults(execute=execute)


def execute(options: Namespace, _environ: Environ) -> int:
    """Print the facts of each wheel."""
    for path in options.wheels:
        facts = inspect_wheel(path)
        lines = [json.dumps(facts.as_json())] if options.json else describe(facts)
        for line in lines:
            show(line)
    return DONE
