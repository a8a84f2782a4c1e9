"""Import a package as its users do and print its version as JSON.

    python -I -B import_package.py wheel [WHEEL]
    python -I -B import_package.py fallback flash-attention-amd|flash-attn [ABSENT ...]

`wheel` imports flash-attn: the installed copy, or WHEEL, which is extracted to a temporary folder; that form is for the
Python of a CK cell in its image. `fallback` imports flash-attention-amd, or flash-attn that re-exports it, with torch
alone. ABSENT: packages to hide, because a user may not have them. Importing one raises ImportError.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
import warnings
import zipfile


def import_wheel(path: str | None = None) -> str:
    """Import the installed flash-attn, or the wheel, and return its version."""
    with tempfile.TemporaryDirectory() as folder:
        if path:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
            sys.path.insert(0, folder)  # first: the image may have its own flash-attn
        # after 2.8.3, flash-attn warns of an extension that does not load, and uses aiter instead if there is one
        warnings.filterwarnings("error", message="flash_attn_2_cuda ")
        try:
            from flash_attn.flash_attn_interface import flash_attn_func
        except UserWarning as fallback:
            raise (fallback.__context__ or fallback) from None

        assert callable(flash_attn_func)
        return importlib.metadata.version("flash-attn")


def import_fallback(project: str, *absent: str) -> str:
    """Import the public names of the fallback, and return the version of the project."""
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None makes an import fail
    from flash_attention_amd import (
        FlashAttention,
        flash_attn_func,
        flash_attn_qkvpacked_func,
        flash_attn_varlen_func,
        flash_attn_with_kvcache,
    )

    functions = (flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func, flash_attn_with_kvcache)
    assert all(map(callable, (FlashAttention, *functions)))
    if project == "flash-attn":
        import flash_attn.bert_padding
        import flash_attn.layers.rotary

        assert flash_attn.flash_attn_varlen_func is flash_attn_varlen_func
    return importlib.metadata.version(project)


if __name__ == "__main__":
    what, *names = sys.argv[1:]
    version = import_fallback(*names) if what == "fallback" else import_wheel(*names)
    sys.stdout.write(f"\n{json.dumps({'version': version})}\n")
