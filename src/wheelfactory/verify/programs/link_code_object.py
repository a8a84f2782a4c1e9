"""An ld.lld for the Tritons that call one: links code objects with the linker that is inside a newer Triton.

python -I -B link_code_object.py -flavor gnu -shared OBJECT -o CODE_OBJECT
"""

from __future__ import annotations

import sys
from importlib.metadata import version


def main(arguments: list[str]) -> None:
    """Link, or say which linker this is: Triton makes that part of the key of its cache."""
    if arguments == ["--version"]:
        sys.stdout.write(f"LLD of Triton {version('triton')}\n")
        return
    from triton._C.libtriton import amd  # type: ignore[import-not-found]

    if arguments[:3] != ["-flavor", "gnu", "-shared"] or arguments[4:5] != ["-o"]:
        sys.exit(f"not how Triton 3.1 to 3.4 call a linker: {arguments}")
    amd.link_hsaco(arguments[3], arguments[5])


if __name__ == "__main__":
    main(sys.argv[1:])
