"""Run by the Python of a CK cell in its image: ``python -IB import_wheel.py WHEEL`` imports it from a folder of its
own and prints its version."""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
import zipfile


def main(wheel: str) -> None:
    """Unpack the wheel before all else that is on the path: the image may have a flash-attn of its own."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        sys.path.insert(0, folder)
        from flash_attn.flash_attn_interface import flash_attn_func  # type: ignore[import-not-found]  # the wheel's

        assert callable(flash_attn_func)
        sys.stdout.write(f"{importlib.metadata.version('flash-attn')}\n")


if __name__ == "__main__":
    main(sys.argv[1])
