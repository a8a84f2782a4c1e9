"""Selects the Triton backend without FLASH_ATTENTION_TRITON_AMD_ENABLE; added by wheelfactory.

flash-attn imports its Triton backend only if that variable is exactly TRUE. Otherwise it imports a module of this name,
which is compiled in other wheels. This wheel has only the Triton backend, so this module exports it.
"""

import os

_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"

if os.environ.get(_VARIABLE, "").strip().lower() in ("false", "0", "no", "off"):
    raise ImportError(
        f"{_VARIABLE}={os.environ[_VARIABLE]} asks for the Composable Kernel backend, and this flash-attn is the "
        "Triton wheel: unset the variable, or install the wheel without triton in its label"
    )

from flash_attn.flash_attn_triton_amd.interface_fa import bwd, fwd, fwd_kvcache, varlen_bwd, varlen_fwd

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]
