"""The packages that another Python interpreter finds.

Only its search path comes from that interpreter; the metadata is read here. Part of doctor.py, so it uses only the
standard library of Python 3.9.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from wheelfactory.core.errors import InputError
from wheelfactory.core.query import query_program

# runs on Python 3.8 and newer
_QUERY = r"""
import json, sys
sys.path[:] = [folder for folder in sys.path if folder]  # the working directory holds no installed packages
from importlib import util
def origin(name):
    try:
        return util.find_spec(name).origin
    except Exception:
        return None
print("answer:" + json.dumps({"path": sys.path, "origins": {name: origin(name) for name in sys.argv[1:]}}))
"""


@dataclass(frozen=True)
class Packages:
    """Where an interpreter finds its imports."""

    search_path: tuple[str, ...]
    """Its ``sys.path`` without the working directory."""
    origins: Mapping[str, str | None]
    """The file of each requested module; None if it is not installed."""

    def distributions(self, name: str) -> Iterator[metadata.Distribution]:
        """Find the distributions of that name in any spelling; Python imports from the first."""
        return iter(metadata.distributions(name=name, path=list(self.search_path)))


def find_packages(
    python: Sequence[str], environ: Mapping[str, str], seconds: float = 60, modules: Sequence[str] = ()
) -> Packages:
    """Query an interpreter, given as a command, for its search path and the files of `modules`, without importing any.

    Raises `InputError` if the interpreter does not run.
    """
    result = query_program([*python, "-c", _QUERY, *modules], environ, seconds)
    if "path" not in result.answers:
        which = f"{python[0]} ({result.last_line or 'no output'})"
        raise InputError("cannot examine this Python", which, "name a Python 3.8 or newer with --python")
    importlib.invalidate_caches()  # a caller may install a package and query again
    return Packages(tuple(result.answers["path"]), result.answers["origins"])
