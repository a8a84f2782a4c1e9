"""Adds a filter to the arguments of upstream's generator. Stands on PYTHONPATH as ``sitecustomize`` of setup.py.

setup.py starts the generator with ``sys.executable`` and fixed arguments. No program on PATH and no variable of the
generator reaches them, but every Python imports ``sitecustomize`` before it runs its script. This one changes nothing
unless script and arguments are exactly those of a command in ``filters.json`` beside it.
"""

from __future__ import annotations

import json
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

# type checkers treat it as typing.TYPE_CHECKING, which every start of Python would have to import
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FILTERS_FILE = "filters.json"
"""A list of pairs: the arguments of Python (script and its arguments), and the filter to add."""


def added_arguments(arguments: Sequence[str], filters: Iterable[tuple[Sequence[str], str]]) -> list[str]:
    """The arguments to add to a command of Python; empty unless it is exactly one of those with a filter."""
    return next((["--filter", value] for command, value in filters if list(command) == list(arguments)), [])


def _main(folder: Path) -> None:
    sys.argv += added_arguments(sys.argv, json.loads((folder / FILTERS_FILE).read_bytes()))
    # the sitecustomize that this one hides, such as Ubuntu's
    sys.path[:] = [path for path in sys.path if path != str(folder)]
    hidden = PathFinder.find_spec("sitecustomize")
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(module_from_spec(hidden))


if __name__ == "sitecustomize":
    _main(Path(__file__).parent)
