"""What does not fit is refused, in words that say what and which."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flash_attention_amd import (
    FlashAttention,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from torch import Tensor


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


Q, K = zeros(2, 5, 4, 8), zeros(2, 7, 2, 8)
ROWS, CU = zeros(9, 2, 8), torch.tensor([0, 4, 9])

DENSE: list[tuple[list[Tensor], dict[str, Any], type[Exception], str]] = [
    ([Q[0], K, K], {}, ValueError, r"q must be \(batch, seqlen, heads, headdim\), not \(5, 4, 8\)"),
    ([Q, K, K[0]], {}, ValueError, r"v must be \(batch, seqlen, heads, headdim\), not \(7, 2, 8\)"),
    ([Q.int(), K.int(), K.int()], {}, TypeError, "q must be float16, bfloat16, float32 or float64, not torch.int32"),
    ([Q, K.half(), K], {}, TypeError, "one dtype: q has torch.float32, k has torch.float16"),
    ([Q, K, K.double()], {}, TypeError, "one dtype: q has torch.float32, v has torch.float64"),
    ([Q, K.to("meta"), K], {}, ValueError, "one device: q is on cpu, k on meta"),
    ([Q, K, K[:, 1:]], {}, ValueError, r"one shape: k has \(2, 7, 2, 8\), v has \(2, 6, 2, 8\)"),
    ([Q, K[:1], K[:1]], {}, ValueError, "one batch size: q has 2, k has 1"),
    ([Q, K[..., 1:], K[..., 1:]], {}, ValueError, "one headdim: q has 8, k has 7"),
    ([Q[:, :, :3], K, K], {}, ValueError, "the heads of q, 3, must be a multiple of those of k, 2"),
    ([Q, K[:, :, :0], K[:, :, :0]], {}, ValueError, "the heads of q, 4, must be a multiple of those of k, 0"),
    ([Q, K, K], {"dropout_p": 1.0}, ValueError, "dropout_p must be at least 0 and below 1, not 1.0"),
    ([Q, K, K], {"dropout_p": -0.1}, ValueError, "dropout_p must be at least 0 and below 1, not -0.1"),
    ([Q, K, K], {"window_size": (1, 2, 3)}, ValueError, r"window_size must be \(left, right\), not \(1, 2, 3\)"),
    ([Q, K, K], {"alibi_slopes": zeros(3)}, ValueError, r"alibi_slopes must be \(4,\) or \(2, 4\)"),
    ([Q, K, K], {"alibi_slopes": zeros(4).to("meta")}, ValueError, "alibi_slopes must be on cpu as q, not on meta"),
]


@pytest.mark.parametrize(("tensors", "options", "error", "words"), DENSE, ids=[row[3] for row in DENSE])
def test_attention_refuses(tensors: list[Tensor], options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        flash_attn_func(*tensors, **options)


def test_packed_tensors_need_the_right_shape() -> None:
    with pytest.raises(ValueError, match=r"qkv must be \(batch, seqlen, 3, heads, headdim\), not \(2, 5, 2, 4, 8\)"):
        flash_attn_qkvpacked_func(zeros(2, 5, 2, 4, 8))
    with pytest.raises(ValueError, match=r"kv must be \(batch, seqlen, 2, heads, headdim\), not \(2, 7, 2, 8\)"):
        flash_attn_kvpacked_func(Q, K)
    with pytest.raises(ValueError, match=r"qkv must be \(total, 3, heads, headdim\), not \(9, 2, 8\)"):
        flash_attn_varlen_qkvpacked_func(ROWS, CU, 5)


VARLEN: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"cu_seqlens_q": CU.float()}, TypeError, "cu_seqlens_q must have an integer dtype, not torch.float32"),
    ({"cu_seqlens_k": CU[None]}, ValueError, r"cu_seqlens_k must be \(batch \+ 1,\), not \(1, 3\)"),
    ({"cu_seqlens_k": CU[:2]}, ValueError, "must be of one length, not 3 and 2"),
    ({"cu_seqlens_q": CU + 1}, ValueError, "cu_seqlens_q must start with 0, not 1"),
    ({"cu_seqlens_q": torch.tensor([0, 6, 4])}, ValueError, r"cu_seqlens_q must not fall: \[0, 6, 4\]"),
    (
        {"cu_seqlens_k": torch.tensor([0, 4, 10])},
        ValueError,
        "cu_seqlens_k must end at 9 or before, the rows of k, not at 10",
    ),
    ({"max_seqlen_q": 4}, ValueError, "max_seqlen_q must be at least 5, the longest sequence, not 4"),
    ({"max_seqlen_k": 2}, ValueError, "max_seqlen_k must be at least 5, the longest sequence, not 2"),
    ({"q": ROWS[None]}, ValueError, r"q must be \(total, heads, headdim\), not \(1, 9, 2, 8\)"),
    ({"alibi_slopes": zeros(3, 2)}, ValueError, r"alibi_slopes must be \(2,\) or \(2, 2\)"),
    ({"block_table": zeros(2, 1)}, ValueError, r"k must be \(blocks, block size, heads, headdim\), not \(9, 2, 8\)"),
    (
        {"block_table": zeros(2, 1), "k": zeros(3, 9, 2, 8), "v": zeros(3, 9, 2, 8)},
        TypeError,
        "block_table must have an int",
    ),
    (
        {"block_table": zeros(2, 1).int(), "k": zeros(3, 4, 2, 8), "v": zeros(3, 4, 2, 8)},
        ValueError,
        "block_table has room for 4 keys of a sequence, one has 5",
    ),
]


@pytest.mark.parametrize(("given", "error", "words"), VARLEN, ids=[row[2] for row in VARLEN])
def test_packed_sequences_are_refused(given: dict[str, Any], error: type[Exception], words: str) -> None:
    arguments = {
        "q": ROWS,
        "k": ROWS,
        "v": ROWS,
        "cu_seqlens_q": CU,
        "cu_seqlens_k": CU,
        "max_seqlen_q": 5,
        "max_seqlen_k": 5,
    }
    with pytest.raises(error, match=words):
        flash_attn_varlen_func(**{**arguments, **given})


ANGLES = zeros(7, 4)
CACHED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"k": K[:, :1]}, ValueError, "k and v must be given both or neither"),
    ({"k": K[:, :1], "v": K[:, :1]}, ValueError, "cache_seqlens must be given with k and v"),
    ({"k": K[:1], "v": K[:1], "cache_seqlens": 0}, ValueError, "one batch size: q has 2, k has 1"),
    ({"k": K.half(), "v": K.half(), "cache_seqlens": 0}, TypeError, "one dtype"),
    (
        {"k": K, "v": K, "cache_seqlens": 1},
        ValueError,
        "the cache has 7 rows a sequence; rows 1 to 8 of one are asked for",
    ),
    ({"cache_seqlens": 8}, ValueError, "the cache has 7 rows a sequence; rows 0 to 8"),
    ({"cache_seqlens": -1}, ValueError, "the cache has 7 rows a sequence; rows 0 to -1"),
    ({"cache_seqlens": CU}, ValueError, r"cache_seqlens must be \(2,\), one for each sequence of q, not \(3,\)"),
    ({"cache_seqlens": zeros(2)}, TypeError, "cache_seqlens must have an integer dtype"),
    ({"cache_seqlens": 3, "cache_leftpad": torch.tensor([0, 4])}, ValueError, "rows 4 to 3"),
    ({"cache_batch_idx": zeros(2)}, TypeError, "cache_batch_idx must have an integer dtype"),
    ({"k_cache": K[:1], "v_cache": K[:1]}, ValueError, "k_cache must have at least 2 sequences, the batch of q, not 1"),
    ({"block_table": CU}, ValueError, r"block_table must be \(batch, blocks of a sequence\), batch 2, not \(3,\)"),
    ({"block_table": CU[:2, None], "cache_batch_idx": CU[:2]}, ValueError, "cannot be given both"),
    (
        {"rotary_cos": ANGLES, "rotary_sin": ANGLES},
        ValueError,
        "rotary_cos and rotary_sin must be given both, and only with",
    ),
    (
        {"k": K[:, :1], "v": K[:, :1], "cache_seqlens": 0, "rotary_cos": ANGLES},
        ValueError,
        "must be given both, and only with",
    ),
]


def angles(*shape: int) -> dict[str, Any]:
    new = {"k": K[:, :3], "v": K[:, :3], "cache_seqlens": 4}
    return {**new, "rotary_cos": zeros(*shape), "rotary_sin": zeros(*shape)}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        *CACHED,
        (angles(9, 5), ValueError, r"\(positions, rotary_dim / 2\), rotary_dim at most 8; found \(9, 5\) and \(9, 5\)"),
        (angles(6, 4), ValueError, "must have 7 positions, not 6"),
        ({**angles(8, 4), "causal": True}, ValueError, "must have 9 positions, not 8"),
    ],
)
def test_caches_are_refused(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        flash_attn_with_kvcache(**{"q": Q, "k_cache": K.clone(), "v_cache": K.clone(), **given})


def test_a_refused_step_leaves_the_cache_as_it_was() -> None:
    caches = [torch.ones(2, 7, 2, 8), torch.ones(2, 7, 2, 8)]
    with pytest.raises(ValueError, match="rows 4 to 8"):
        flash_attn_with_kvcache(Q, *caches, K[:, :4], K[:, :4], cache_seqlens=torch.tensor([0, 4]))
    assert all(bool((cache == 1).all()) for cache in caches)


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (zeros(2, 7), TypeError, "mask must be bool, True where a query may see a key, not torch.float32"),
        (zeros(2, 5).bool(), ValueError, r"mask must be \(2, 7\), \(2, 5, 7\) or \(2, 1 or 4, 5, 7\), not \(2, 5\)"),
        (zeros(2, 2, 5, 7).bool(), ValueError, r"not \(2, 2, 5, 7\)"),
        (zeros(2, 7).bool().to("meta"), ValueError, "mask must be on cpu as q, not on meta"),
    ],
)
def test_masks_are_refused(mask: Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        FlashAttention()(Q, K, K, mask)


def test_the_module_checks_its_arguments_as_the_function_does() -> None:
    with pytest.raises(ValueError, match=r"dropout must be at least 0 and below 1, not 1\.5"):
        FlashAttention(dropout=1.5)
    with pytest.raises(ValueError, match="one batch size"):
        FlashAttention()(Q, K[:1], K[:1])
