"""The functions of flash-attn in pure PyTorch, for any GPU that torch runs on, and for CPUs.

    from flash_attention_amd import flash_attn_func

Names, arguments, shapes and results match flash-attn 2.8.3. See `flash_attn_func` for when a fused kernel of torch
computes, and when the slower block algorithm does.
"""

from flash_attention_amd.functions import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from flash_attention_amd.kvcache import flash_attn_with_kvcache
from flash_attention_amd.module import FlashAttention
from flash_attention_amd.varlen import (
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)

__version__ = "0.1.0"

__all__ = [
    "FlashAttention",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
