"""The attention calls whose numbers are checked: ``small`` for every wheel, ``full`` also on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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


SMALL = (
    AttentionCase("full", (80, 80), (80, 80)),
    AttentionCase("causal", (160, 160), (160, 160), causal=True, scale=0.2),  # more than one block of every kernel
    AttentionCase("wide", (128,), (128,), dim=128),
    AttentionCase("uneven causal", (70, 70), (100, 100), dim=40, causal=True),
    AttentionCase("grouped causal", (80, 80), (80, 80), heads=4, causal=True),
    AttentionCase("packed", (33, 70, 17), (33, 70, 17), packed=True),
    AttentionCase("packed causal", (33, 70, 17), (50, 70, 90), packed=True, causal=True),
    AttentionCase("cached", (1, 1), (100, 170), cache=256),
    AttentionCase("cached causal", (3, 3), (100, 170), heads=4, causal=True, cache=256),
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
    AttentionCase(
        "longer queries causal", (512, 512), (256, 256), causal=True
    ),  # queries that see no key: their output is 0
    AttentionCase("longer queries full", (512, 512), (256, 256)),
    AttentionCase("scaled full", (256,), (256,), scale=0.05),
    AttentionCase("grouped by three full", (113, 113), (203, 203), heads=6),
    AttentionCase("grouped in one causal", (256, 256), (256, 256), heads=4, groups=1, causal=True, dim=128),
    AttentionCase("packed with one row causal", (1, 113, 256, 70), (1, 113, 256, 70), packed=True, causal=True),
    AttentionCase("packed with one row full", (1, 113, 256), (512, 203, 7), packed=True),
    AttentionCase("grouped packed full", (113, 1, 512), (203, 256, 512), heads=4, packed=True),
    AttentionCase("grouped cached full", (1, 1), (1, 1000), heads=4, groups=1, cache=1024, dim=128),
    AttentionCase("uneven cached full", (1, 1, 1), (1, 512, 1000), cache=1024),
    AttentionCase("cached long causal", (113, 113), (512, 1000), cache=1024, causal=True),
    AttentionCase("cached appended full", (1, 1), (100, 1000), cache=1024, appended=1),
    AttentionCase("cached appended causal", (16, 16), (100, 1000), heads=4, cache=1024, appended=16, causal=True),
)
"""Every head dim in upstream's tests of both backends, several blocks, all layouts."""

SUITES = {"small": SMALL, "full": FULL}
