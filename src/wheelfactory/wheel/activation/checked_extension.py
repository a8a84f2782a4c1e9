"""Passes to the Composable Kernel extension only calls that it computes correctly; added by wheelfactory.

Its bindings take arguments that they do not read. They are refused here with an error.
"""

import functools

import flash_attn_2_cuda  # type: ignore[import-not-found]

_SOFTCAP = "flash-attention-amd, or attn_implementation='eager' in transformers (models such as Gemma 2 need it)"
_ROWS = "packed sequences or a cache without unused rows before and after the keys"
# by function: the positions of the arguments that it ignores, each with its name and what to use
_IGNORED = {
    "fwd": {10: ("softcap", _SOFTCAP)},
    "varlen_fwd": {6: ("seqused_k", _ROWS), 7: ("leftpad_k", _ROWS), 18: ("softcap", _SOFTCAP)},
    "bwd": {15: ("softcap", _SOFTCAP)},
    "varlen_bwd": {20: ("softcap", _SOFTCAP)},
    "fwd_kvcache": {9: ("cache_leftpad", _ROWS), 17: ("softcap", _SOFTCAP)},
}


def _checked(name, compute):
    @functools.wraps(compute)
    def checked(*arguments):
        for place, (option, instead) in _IGNORED[name].items():
            value = arguments[place]
            if value is not None and not (option == "softcap" and value == 0):
                raise NotImplementedError(
                    f"the Composable Kernel bindings of this flash-attn ignore {option}, so this call would give wrong "
                    f"numbers: use {instead}"
                )
        return compute(*arguments)

    return checked


# 2.6.3 has no fwd_kvcache
for _name in _IGNORED.keys() & set(dir(flash_attn_2_cuda)):
    globals()[_name] = _checked(_name, getattr(flash_attn_2_cuda, _name))
