"""An ld.lld for old Tritons: link code objects with the built-in linker of a newer Triton.

python -I -B link_code_object.py -flavor gnu -shared OBJECT -o CODE_OBJECT
"""

from __future__ import annotations

import sys
from importlib.metadata import version


def main(arguments: list[str]) -> None:
    """Link, or print the linker's version, which Triton uses in its cache key."""
    if arguments == ["--version"]:
        sys.stdout.write(f"LLD of Triton {version('triton')}\n")
        return
    from triton._C.libtriton import amd  # type: ignore[import-not-found]

    if arguments[:3] != ["-flavor", "gnu", "-shared"] or arguments[4:5] != ["-o"]:
        sys.exit(f"unsupported linker arguments (expected those of Triton 3.1 to 3.4): {arguments}")
    amd.link_hsaco(arguments[3], arguments[5])


if __name__ == "__main__":
    main(sys.argv[1:])
