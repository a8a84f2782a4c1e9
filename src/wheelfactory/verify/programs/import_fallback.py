"""Import flash-attention-amd, or flash-attn that re-exports it, with torch alone, and print its version as JSON.

    python -I -B import_fallback.py flash-attention-amd|flash-attn [ABSENT ...]

ABSENT: packages to hide, because a user may not have them. Importing one raises ImportError.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Sequence


def main(project: str, absent: Sequence[str]) -> None:
    """Import the public names."""
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
    sys.stdout.write(f"\n{json.dumps({'version': importlib.metadata.version(project)})}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
