"""Which calls launch the kernels of a generated source: derived from its name, which says what the kernel is for.

Names are those of CK's generators (example/ck_tile/01_fmha/codegen/ops/*.py) in flash-attn 2.8.3 and the preview. They
only suggest calls: which kernels a call launches is known when it was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from wheelfactory.emulator.ck_calls import Call

_TILE = re.compile(r"_b(\d+)x(\d+)x")
_PADS = re.compile(r"p(?P<s>s(?=s|d|$))?(?P<sk>sk)?(?P<d>d(?!v)\d*)?(?P<dv>dv\d*)?")
_DIM = re.compile(r"_d(\d+)_")

SPLITS = (3, 12, 24, 48, 100)
"""One number of splits for each kernel that combines: they are for up to 8, 16, 32, 64 and 128."""


def suggest_calls(source: str) -> Iterator[Call]:
    """Yield calls that may launch kernels of a source, by its name without extension; none for an API source."""
    words, dim = source.split("_"), _DIM.search(source)
    if dim is None or "dot_do_o" in source or "convert_dq" in source or "nlse" in words or "logits" in words:
        return  # the first two run in the calls of other sources, and the bindings call none of the last
    pads, tile = _pads_of(words), _TILE.search(source)
    rows, columns = (int(tile[1]), int(tile[2])) if tile else (64, 64)
    rows, columns = 40 if "s" in pads else rows, columns + 6 * ("sk" in pads)
    call = Call(
        name=source,
        api=source[:8],
        dtype="bf16" if "bf16" in words else "fp16",
        queries=(rows,),
        keys=(columns,),
        groups=1,
        dim=int(dim[1]) - 8 * bool(pads & {"d", "dv"}),
        causal="mask" in words,
        alibi="alibi" in words,
    )
    if source.startswith("fmha_fwd_appendkv"):
        rotary = {"inter": "interleaved", "half": "half"}.get(
            next((word for word in ("inter", "half") if word in words), ""), ""
        )
        call = replace(call, api="fmha_fwd_appendkv", causal=True, rotary=rotary)
        yield replace(call, queries=(rows,) * 2, keys=(17, 125), page=128 * ("pagedkv" in words))
    elif source.startswith("fmha_fwd_splitkv"):
        yield from _split_calls(replace(call, api="fmha_fwd_splitkv", queries=(rows,) * 2, keys=(200, 70)), words)
    else:
        if "group" in words:
            call = replace(call, packed=True, queries=(33, 1, 20), keys=(50, columns, 20))
        yield replace(call, dropout=0.25 * ("dropout" in words), deterministic="deterministic" in words)


def _split_calls(call: Call, words: list[str]) -> Iterator[Call]:
    if "combine" in words:
        # the kernel before it has the most common options: every release has it
        # with few rows, as each split is a work-group
        small = replace(call, queries=call.queries[:1], keys=call.keys[:1], heads=1, causal=True, page=128)
        for splits in SPLITS:
            yield replace(small, name=f"{call.name}, {splits} splits", splits=splits)
    elif "group" not in words:
        paged = replace(call, splits=3, page=128 * ("pagedkv" in words))
        yield paged
        if call.dim == 128 and not call.causal and not call.alibi:
            # one query for several heads: their rows are merged
            yield replace(paged, name=f"{call.name}, merged", queries=(1, 1), heads=4, groups=2)


def _pads_of(words: list[str]) -> set[str]:
    """Return which sizes are not a multiple of the tile: ``s`` rows of queries, ``sk`` rows of keys, ``d``, ``dv``."""
    found = next((match for word in words if word != "pagedkv" and (match := _PADS.fullmatch(word))), None)
    return {name for name, part in found.groupdict().items() if part} if found else set()
