"""Refuses options that compiled kernels ignore; added by wheelfactory.

flash_attn imports its extension from here. In a Triton wheel that module is Python, and checks the calls itself.
"""

import functools

import flash_attn_2_cuda

# arguments that the bindings of Composable Kernel take and never read, by position
_IGNORED = {
    "fwd": {10: "softcap"},
    "varlen_fwd": {6: "seqused_k", 7: "leftpad_k", 18: "softcap"},
    "bwd": {15: "softcap"},
    "varlen_bwd": {20: "softcap"},
    "fwd_kvcache": {9: "cache_leftpad", 17: "softcap"},
}


def _checked(compute, ignored):
    @functools.wraps(compute)
    def call(*given, **named):
        for position, option in ignored.items():
            value = given[position]
            if option == "softcap" and value:
                raise NotImplementedError(
                    f"the Composable Kernel wheels of flash-attn ignore softcap={value}, so this call would give wrong "
                    "numbers (models such as Gemma 2 need it): use flash-attention-amd, or attn_implementation='eager' "
                    "in transformers"
                )
            if option != "softcap" and value is not None:
                raise NotImplementedError(
                    f"the Composable Kernel wheels of flash-attn ignore {option}, so this call would give wrong "
                    "numbers: use keys without padding"
                )
        return compute(*given, **named)

    return call


if not flash_attn_2_cuda.__file__.endswith(".py"):
    for _name, _ignored in _IGNORED.items():
        if hasattr(flash_attn_2_cuda, _name):  # 2.6.3 has no fwd_kvcache
            setattr(flash_attn_2_cuda, _name, _checked(getattr(flash_attn_2_cuda, _name), _ignored))
