"""Print as JSON the `Scope` in which the loader resolves an extension that needs some libraries.

    python -IB read_scope.py ROCM NEEDED...

The Python of a CK cell runs it. ROCM is the ROCm folder; it may be empty.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from wheelfactory.wheel.elf.dynamic import SYSTEM_FOLDERS, load_scope

sys.path.pop(0)  # if this package is installed, a torch for another Python may be next to it


def main(rocm: str, needed: list[str]) -> None:
    """Search libraries in the loader's order: Python's own, torch's, ROCm's, the system's."""
    found = importlib.util.find_spec("torch")
    torch = [f"{place}/lib" for place in (found.submodule_search_locations or ())] if found else []
    folders = [str(sysconfig.get_config_var("LIBDIR")), *torch, *([f"{rocm}/lib"] if rocm else []), *SYSTEM_FOLDERS]
    scope = load_scope(needed, Path(os.path.realpath(sys.executable)), [Path(folder) for folder in folders])
    json.dump({**asdict(scope), "defined": sorted(scope.defined)}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
