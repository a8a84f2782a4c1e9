"""What the parts of a generated kernel's name mean.

Source: the generators of Composable Kernel (example/ck_tile/01_fmha/codegen/ops/*.py): the one that flash-attn 2.8.3
brings, and for `trload`, `maxq`, `sink`, `qscale` and the arch at the end, the one of August 2026.
"""

from __future__ import annotations

import re

OPERATIONS = {
    "fwd": ("forward", "attention itself: softmax(QK)V"),
    "fwd_splitkv": ("forward", "attention with keys cut into parts (flash-decoding: few queries, long cache)"),
    "fwd_splitkv_combine": ("forward", "joins the parts that splitkv left"),
    "fwd_appendkv": ("forward", "writes new keys and values into the KV cache, with rotary embedding"),
    "fwd_pagedkv": ("forward", "attention over a KV cache in pages"),
    "batch_prefill": ("forward", "prefill of a batch over a KV cache in pages"),
    "bwd": ("backward", "the gradients dQ, dK, dV: five matrix products fused"),
    "bwd_dot_do_o": ("backward", "before the gradients: row sums of dO times O"),
    "bwd_convert_dq": ("backward", "after the gradients: dQ from float32 to the type of Q"),
}
"""By the beginning of the name: direction, and what the kernel computes."""

TYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp8": "float8",
    "bf8": "float8 with 5 bits of exponent",
    "fp8fp16": "float8 in, float16 out",
    "fp8bf16": "float8 in, bfloat16 out",
    "fp8fp32": "float8 in, float32 out",
    "mxfp8": "float8 with a scale per block",
    "mxfp4": "float4 with a scale per block",
}

_FORWARD_TILE = (
    *("queries", "keys", "step through the head dim in QK", "head dim of V"),
    *("step through the keys in PV", "head dim of Q held at once"),
)
BLOCK_TILES: dict[str, tuple[str, ...]] = {
    "fwd": _FORWARD_TILE,
    "fwd_splitkv": _FORWARD_TILE,
    "fwd_pagedkv": _FORWARD_TILE,
    "batch_prefill": _FORWARD_TILE,
    "fwd_splitkv_combine": ("head dim of V",),
    "fwd_appendkv": ("queries", "keys", "head dim of Q and K", "head dim of V"),
    "bwd": (
        *("queries", "keys", "step of QK", "step of dV", "step of dP", "step of dK", "step of dQ"),
        *("head dim of Q", "head dim of V"),
    ),
    "bwd_dot_do_o": ("queries",),
    "bwd_convert_dq": ("queries", "keys"),
}
"""What each number after ``b`` is, the tile that one workgroup works on, by operation."""

_PRODUCTS = {"fwd": ("QK", "PV"), "bwd": ("QK and dP", "dV and dK", "dQ")}

LETTERS = {"s": "queries", "sk": "keys", "d": "head dim of Q", "dv": "head dim of V"}
_PADDING = re.compile(r"p(s)?(sk)?(?:(d)([0-9]*))?(?:(dv)([0-9]*))?")

FIXED: dict[str, str] = {
    "batch": "batch: sequences of one length",
    "group": "group: sequences of different lengths, packed (varlen)",
    "kr_ktr_vr_iglp": "pipeline: K, its transpose and V in registers, instructions interleaved (iglp)",
    "kr_ktr_vr": "pipeline: K, its transpose and V in registers",
    "ks_kts_vr": "pipeline: K and its transpose in shared memory, V in registers",
    "qs_ks_vr_dos": "pipeline: Q, K and dO in shared memory, V in registers",
    "ks_vr": "pipeline: K in shared memory, V in registers",
    "qr_async_trload_v3": "pipeline: Q in registers, asynchronous and transposing loads, third version",
    "qr_async_trload": "pipeline: Q in registers, asynchronous and transposing loads",
    "qr_nwarp_sshuffle": "pipeline: Q in registers, several warps share a softmax row",
    "qr_async": "pipeline: Q in registers, K and V loaded asynchronously",
    "qr_pagedkv": "pipeline: Q in registers, KV cache in pages",
    "qr_hpad": "pipeline: Q in registers, head dim padded",
    "qr": "pipeline: Q in registers",
    "qs": "pipeline: Q in shared memory",
    "vr": "V in rows",
    "vc": "V in columns",
    "npad": "no padding",
    "logits": "logits soft cap",
    "nlogits": "no logits soft cap",
    "bias": "bias added to the scores",
    "alibi": "ALiBi: a bias by distance",
    "nbias": "no bias",
    "dbias": "gradient of the bias",
    "ndbias": "no gradient of the bias",
    "mask": "mask (causal or window)",
    "mc": "causal mask",
    "mg": "any mask",
    "nmask": "no mask",
    "lse": "keeps log-sum-exp, which the backward pass needs",
    "nlse": "no log-sum-exp",
    "dropout_wg32_storerandval": "dropout, 32-wide, random values kept",
    "dropout_wg16_storerandval": "dropout, 16-wide, random values kept",
    "dropout_wg32": "dropout, 32-wide",
    "dropout_wg16": "dropout, 16-wide",
    "dropout": "dropout",
    "ndropout": "no dropout",
    "skip": "skips rows without keys",
    "nskip": "does not skip rows",
    "squant": "static quantization",
    "nsquant": "no quantization",
    "pertensor": "one quantization scale",
    "blockscale": "quantization scale per block",
    "kv_blockscale": "quantization scale per block of the cache",
    "perhead": "quantization scale per head",
    "mx": "microscaling",
    "nqscale": "no quantization scale",
    "pagedkv": "KV cache in pages",
    "npagedkv": "KV cache in one piece",
    "inter": "rotary embedding, interleaved",
    "half": "rotary embedding, halves",
    "deterministic": "deterministic: the same gradient each time",
    "ndeterministic": "not deterministic: adds in any order, faster",
    "trload": "transposing loads (gfx950)",
    "ntrload": "no transposing loads",
    "sink": "attention sink",
    "nsink": "no attention sink",
    "unused": "no pipeline to choose",
}
"""Parts that are always written alike. Of several that fit, the longest is meant."""

LONGEST_FIRST = sorted(FIXED, key=len, reverse=True)


def block_tile(operation: str, sizes: list[str]) -> str | None:
    """What ``b16x128x...`` says; None if this operation has no tile of so many numbers."""
    names = BLOCK_TILES.get(operation, ())
    if len(names) != len(sizes):
        return None
    return "tile: " + ", ".join(f"{size} {name}" for size, name in zip(sizes, names, strict=True))


def warps(operation: str, position: int, sizes: str) -> str:
    """What the ``r4x1x1`` at this position (0 is the first) says."""
    return f"warps: {sizes} for {_product(operation, position)}"


def matrix_instruction(operation: str, position: int, sizes: str) -> str:
    """What the ``w16x16x32`` at this position says: the size of the matrix instruction."""
    gradients = ("QK, dP and dQ", "dV and dK")
    name = gradients[position] if operation == "bwd" and position < len(gradients) else _product(operation, position)
    return f"matrix: {sizes} for {name}"


def _product(operation: str, position: int) -> str:
    names = _PRODUCTS["bwd" if operation == "bwd" else "fwd"]
    return names[position] if position < len(names) else f"product {position}"


def padding(word: str) -> str | None:
    """What ``pssk`` or ``pd8dv8`` says: which sizes need not fit the tile; None if it is something else."""
    match = _PADDING.fullmatch(word)
    if match is None or word == "p":
        return None
    s, sk, d, d_multiple, dv, dv_multiple = match.groups()
    named = [(s, ""), (sk, ""), (d, d_multiple), (dv, dv_multiple)]
    told = [LETTERS[letters] + _multiple(number or "") for letters, number in named if letters]
    return f"padded: {', '.join(told)}"


def _multiple(number: str) -> str:
    """The newer generator says how far a head dim may be from the tile: ``8`` a multiple of 8, ``1`` anything."""
    return f" (a multiple of {number})" if number and number != "1" else " (any)" if number else ""
