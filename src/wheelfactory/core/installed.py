"""A Python -> where it looks for packages, and the distributions that are installed there.

Only the first is asked of that Python; metadata is files, which are read here. Needs nothing but the standard library
of Python 3.9: the doctor takes it along.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from wheelfactory.core.errors import InputError
from wheelfactory.core.query import query_program

_ASK_PACKAGES = r"""
import json, sys
sys.path[:] = [folder for folder in sys.path if folder]  # what lies in the working directory is not installed
from importlib import util
def origin(name):
    try:
        return util.find_spec(name).origin
    except Exception:
        return None
print("answer:" + json.dumps({"path": sys.path, "origins": {name: origin(name) for name in sys.argv[1:]}}))
"""
"""For Python 3.8 and newer."""


@dataclass(frozen=True)
class Packages:
    """What a Python finds when it imports."""

    search_path: tuple[str, ...]
    """Where it looks, in its order; not the folder that it was started in."""
    origins: Mapping[str, str | None]
    """The file of each module that was asked for; None for one that it does not find."""

    def distributions(self, name: str) -> Iterator[metadata.Distribution]:
        """The distributions of that name, however it is spelt; Python takes the first."""
        return iter(metadata.distributions(name=name, path=list(self.search_path)))


def find_packages(
    python: Sequence[str], environ: Mapping[str, str], seconds: float = 60, modules: Sequence[str] = ()
) -> Packages:
    """What an interpreter, given with its options, finds; of `modules` also where. None of them is imported.

    Raises `InputError` if it cannot be asked.
    """
    answer = query_program([*python, "-c", _ASK_PACKAGES, *modules], environ, seconds)
    if "path" not in answer.answers:
        which = f"{python[0]} ({answer.last_line or 'it said nothing'})"
        raise InputError("cannot examine this Python", which, "name another with --python; 3.8 or newer")
    importlib.invalidate_caches()  # it may be asked again after something was installed
    return Packages(tuple(answer.answers["path"]), answer.answers["origins"])
