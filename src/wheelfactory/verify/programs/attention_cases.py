"""The attention calls whose numbers are checked: ``small`` for every wheel, ``full`` on a GPU, ``first``
and ``arch`` on an emulator.

Cases of layouts, caches, empty rows and options stand here because a release computed them wrongly without an error
(docs/explanation/upstream-faults.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["rows", "heads", "packed", "expanded"]
"""Contiguous (batch, seqlen, heads, headdim); transposed from (batch, heads, seqlen, headdim); one of three tensors
that lie between heads and headdim; one vector for all rows and heads."""


@dataclass(frozen=True)
class AttentionCase:
    """A call and the shapes of its inputs; tensors hold the rows of all sequences, one after the other."""

    name: str
    queries: tuple[int, ...]
    """The length of each sequence."""
    keys: tuple[int, ...]
    heads: int = 2
    groups: int = 2
    """The number of key and value heads."""
    dim: int = 64
    causal: bool = False
    scale: float | None = None
    """The softmax scale; None is ``dim ** -0.5``."""
    packed: bool = False
    cache: int = 0
    """Rows of the KV cache for each sequence; 0 is a call without cache. A cached call has no backward pass."""
    appended: int = 0
    """The number of keys of a sequence that the call appends to the cache."""
    dtype: str = ""
    """Empty means every dtype."""
    layouts: tuple[Layout, Layout, Layout, Layout] = ("rows", "rows", "rows", "rows")
    """Of queries, keys, values, and of the gradient of the output."""
    shift: float = 0.0
    """Added to queries and subtracted from keys, whose other part is then a tenth: scores are very negative."""
    sums: bool = False
    """Whether the log-sum-exp of each row is compared too."""
    lengths: bool = True
    """Whether a cached call passes ``cache_seqlens``."""
    window: tuple[int, int] = (-1, -1)
    """How many keys before and after its own a query sees; -1 means all."""
    softcap: float = 0.0
    alibi: bool = False
    """Whether each head has an ALiBi slope."""
    dropout: bool = False
    rotary: bool = False
    padding: int = 0
    """Unused rows of a cache before the first key."""
    pages: bool = False
    reordered: bool = False
    """Whether the sequences stand in a cache in another order than in the queries."""
    far: bool = False
    """Whether sequences are further apart than 32-bit offsets reach."""
    forward_only: bool = False
    option: str = ""
    """The row of options.yaml that the case measures; a wheel may refuse it."""

    @property
    def has_gradients(self) -> bool:
        """Whether the backward pass runs."""
        return not self.cache and not self.forward_only


_narrow = partial(AttentionCase, dim=32)
_paged = partial(_narrow, pages=True)
_single = partial(AttentionCase, heads=1, groups=1)

SMALL = (
    _narrow("full", (40, 40), (40, 40)),
    _narrow("causal", (160,), (160,), causal=True, scale=0.2),  # more than one block of every kernel
    _single("wide", (64,), (64,), dim=128),
    AttentionCase("uneven causal", (70, 70), (100, 100), dim=40, causal=True),
    _narrow("packed", (33, 70, 17), (33, 70, 17), packed=True),
    _narrow("packed causal", (33, 70, 17), (50, 70, 90), packed=True, causal=True),
    _narrow("cached", (1, 1), (100, 170), cache=256),
    AttentionCase("cached causal", (3, 3), (100, 170), heads=4, causal=True, cache=256, sums=True),
    _narrow("transposed", (40,), (40,), layouts=("heads", "heads", "heads", "rows")),
    _narrow("packed keys", (40,), (40,), layouts=("rows", "packed", "rows", "rows")),
    _narrow("keys and values of two layouts", (40,), (40,), layouts=("rows", "heads", "rows", "rows")),
    _narrow("expanded gradient", (40,), (40,), layouts=("rows", "rows", "rows", "expanded")),
    _narrow("very negative scores", (40,), (40,), shift=1.9),
    _narrow("very negative scores causal", (64,), (130,), shift=1.9, causal=True),
    AttentionCase("grouped padded head dim causal", (80,), (40,), heads=4, dim=24, causal=True, sums=True),
    AttentionCase("rows without keys causal", (100,), (30,), dim=40, causal=True, sums=True),
    _narrow("packed with empty sequences causal", (5, 9, 20), (10, 0, 12), packed=True, causal=True, sums=True),
    _narrow("cache of 255", (2, 2, 2), (255, 255, 255), heads=8, cache=255, lengths=False, sums=True),
    _narrow("empty cache", (1, 1), (0, 64), cache=64),
    _narrow("empty cache of three queries", (3, 3), (0, 64), cache=64, sums=True),
    _narrow("append after the end causal", (8,), (68,), cache=64, appended=8, causal=True),
    _narrow("window of all keys causal", (40,), (40,), causal=True, window=(39, 0)),
    _narrow("float32", (40,), (40,), dtype="float32", option="float32"),
    _narrow("window", (40,), (70,), window=(8, 3), forward_only=True, option="window_size"),
    _narrow("window gradients", (40,), (70,), window=(8, 3), option="window_size, gradients"),
    _narrow("softcap", (40,), (40,), softcap=5.0, option="softcap"),
    _narrow("alibi", (40,), (70,), alibi=True, forward_only=True, option="alibi_slopes"),
    _narrow("alibi gradients", (40,), (40,), alibi=True, option="alibi_slopes, gradients"),
    # as many keys as the head dim: see `find_kept` in check_numbers.py
    _narrow("dropout", (32,), (32,), dropout=True, option="dropout_p"),
    _narrow("dropout packed", (32,), (32,), packed=True, dropout=True, option="dropout_p"),
    _narrow("rotary causal", (2, 2), (20, 30), cache=64, appended=2, causal=True, rotary=True, option="rotary_cos"),
    _narrow("other order", (1, 1), (20, 42), cache=64, appended=1, reordered=True, option="cache_batch_idx"),
    _paged("pages", (1, 1), (300, 20), cache=512, option="block_table"),
    _paged("pages appended causal", (2,), (258,), cache=512, appended=2, causal=True, option="block_table, new keys"),
    _paged("pages packed", (40,), (300,), packed=True, forward_only=True, option="block_table, packed sequences"),
    _narrow("left padding", (1, 1), (40, 30), cache=64, padding=3, option="cache_leftpad"),
    _single("far offsets", (16, 16), (16, 16), dim=32, far=True, forward_only=True, option="more than 2**31 elements"),
)


def cases_by_dim() -> Iterator[AttentionCase]:
    """Yield each head dim in each dtype, causal in one of the two: each combination takes seconds to compile."""
    for number, dim in enumerate((32, 40, 64, 96, 128, 192, 256)):
        for place, dtype in enumerate(("float16", "bfloat16")):
            causal = (number + place) % 2 == 0
            name = f"dim {dim} {'causal' if causal else 'full'}"
            yield AttentionCase(name, (113, 113), (203, 203), dim=dim, causal=causal, dtype=dtype)


FULL = (
    *SMALL,
    *cases_by_dim(),
    AttentionCase("dim 64 full", (113, 113), (203, 203), dtype="float16"),
    AttentionCase("dim 128 causal", (113, 113), (203, 203), dim=128, causal=True, dtype="bfloat16"),
    AttentionCase("one query full", (1, 1), (239, 239)),
    AttentionCase("long causal", (1000,), (1000,), causal=True),
    AttentionCase("long full", (1000,), (1000,)),
    AttentionCase("longer keys causal", (256, 256), (1000, 1000), causal=True),
    AttentionCase("longer keys full", (256, 256), (1000, 1000)),
    # queries that see no key: their output is 0
    AttentionCase("longer queries causal", (512, 512), (256, 256), causal=True),
    AttentionCase("longer queries full", (512, 512), (256, 256)),
    AttentionCase("scaled full", (256,), (256,), scale=0.05),
    AttentionCase("grouped by three full", (113, 113), (203, 203), heads=6),
    AttentionCase("grouped in one causal", (256, 256), (256, 256), heads=4, groups=1, causal=True, dim=128),
    AttentionCase("packed with one row causal", (1, 113, 256, 70), (1, 113, 256, 70), packed=True, causal=True),
    AttentionCase("packed with one row full", (1, 113, 256), (512, 203, 7), packed=True),
    AttentionCase("grouped packed full", (113, 1, 512), (203, 256, 512), heads=4, packed=True),
    AttentionCase("grouped cached full", (1, 1), (1, 1000), heads=4, groups=1, cache=1024, dim=128),
    AttentionCase("uneven cached full", (1, 1, 1), (1, 512, 1000), cache=1024),
    AttentionCase("cache of 511", (1,), (511,), cache=511, lengths=False),
    AttentionCase(
        "values of another layout",
        (62,),
        (62,),
        heads=16,
        groups=16,
        dim=128,
        layouts=("rows", "rows", "heads", "rows"),
    ),
    AttentionCase("cached long causal", (113, 113), (512, 1000), cache=1024, causal=True),
    AttentionCase("cached appended full", (1, 1), (100, 1000), cache=1024, appended=1),
    AttentionCase("cached appended causal", (16, 16), (100, 1000), heads=4, cache=1024, appended=16, causal=True),
)
"""Every head dim in upstream's tests of both backends, several blocks, all layouts."""

_EACH_ARCH = {
    "float16": (
        *("full", "transposed", "packed keys", "keys and values of two layouts", "expanded gradient"),
        *("very negative scores", "grouped padded head dim causal", "wide", "dropout"),
        *("cache of 255", "empty cache of three queries", "append after the end causal"),
    ),
    "bfloat16": ("packed with empty sequences causal", "cached causal"),
}

ARCH = tuple(
    replace(case, dtype=dtype, forward_only=bool(case.dropout))
    for dtype, names in _EACH_ARCH.items()
    for case in SMALL
    if case.name in names
)
"""What an emulator computes for each arch of a wheel: every entry point, both dtypes, and few kernels to compile."""

FIRST = (
    *(replace(case, dtype=case.dtype or "float16") for case in SMALL),
    *(case for case in ARCH if case.dtype == "bfloat16"),
)
"""What an emulator computes for one arch of a wheel: every small case, with each option."""

SUITES = {"arch": ARCH, "first": FIRST, "small": SMALL, "full": FULL}
