"""Run by the Python of a CK cell: ``python -IB read_scope.py ROCM NEEDED...`` prints as JSON what that extension,
which needs these libraries, would be resolved with: its `Scope`. ROCM may be empty."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from wheelfactory.wheel.elf.scope import SYSTEM_FOLDERS, load_scope

sys.path.pop(0)  # beside the package, once installed, there may be another torch than that of this Python


def main(rocm: str, needed: list[str]) -> None:
    """Look for libraries where the loader would: Python's own, torch's, ROCm's, the system's."""
    found = importlib.util.find_spec("torch")
    torch = [f"{place}/lib" for place in (found.submodule_search_locations or ())] if found else []
    folders = [str(sysconfig.get_config_var("LIBDIR")), *torch, *([f"{rocm}/lib"] if rocm else []), *SYSTEM_FOLDERS]
    scope = load_scope(needed, Path(os.path.realpath(sys.executable)), [Path(folder) for folder in folders])
    json.dump({**asdict(scope), "defined": sorted(scope.defined)}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
