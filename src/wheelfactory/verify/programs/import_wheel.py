"""Import flash-attn as users do and print its version as JSON: the installed copy, or a wheel.

    python -IB import_wheel.py
    python -IB import_wheel.py WHEEL

The second form is for the Python of a CK cell in its image: WHEEL is extracted to a temporary folder.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
import warnings
import zipfile


def main(wheel: str | None = None) -> None:
    """Import the installed flash-attn, or the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        if wheel:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            sys.path.insert(0, folder)  # first: the image may have its own flash-attn
        # after 2.8.3, flash-attn warns of an extension that does not load, and uses aiter instead if there is one
        warnings.filterwarnings("error", message="flash_attn_2_cuda ")
        try:
            from flash_attn.flash_attn_interface import flash_attn_func
        except UserWarning as fallback:
            raise (fallback.__context__ or fallback) from None

        assert callable(flash_attn_func)
        sys.stdout.write(f"\n{json.dumps({'version': importlib.metadata.version('flash-attn')})}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
