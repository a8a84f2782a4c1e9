"""Calls of CK's host API as flash-attn's bindings make them: their memory, the fields that they set, their reports.

Source: csrc/flash_attn_ck/mha_*.cpp of flash-attn 2.8.3. Only numbers here, so the calls can be recorded without numpy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

FIRST_ADDRESS, ADDRESS_STEP = 1 << 40, 1 << 36
"""Where the first buffer of a call is, and how far apart buffers are: an access beyond one of them reaches no other."""

SEED, OFFSET = 1234567, 42
"""Of dropout."""

NOT_FINITE = 1e18
"""The error of a result that was not written, or is NaN or infinite, for which JSON has no number."""


@dataclass(frozen=True)
class Buffer:
    """The memory of a tensor. `kind` is ``data`` (the dtype of the call), or a dtype of numpy.

    Without `values`, it has random numbers if it is data, else zeros.
    """

    shape: tuple[int, ...]
    kind: str = "data"
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Call:
    """One call of the host API. Tensors are (sequence, row, head, dimension); packed sequences are one."""

    name: str
    api: str
    """``fmha_fwd``, ``fmha_fwd_splitkv``, ``fmha_fwd_appendkv`` or ``fmha_bwd``."""
    dtype: str
    """``fp16`` or ``bf16``."""
    queries: tuple[int, ...]
    """Rows of each sequence. Unless they are packed, all have the same."""
    keys: tuple[int, ...]
    """Rows of each sequence; of a cache, how many are used."""
    heads: int = 2
    groups: int = 1
    """Heads of keys and values."""
    dim: int = 24
    causal: bool = False
    alibi: bool = False
    dropout: float = 0.0
    packed: bool = False
    deterministic: bool = False
    splits: int = 1
    cache: int = 256
    """Rows of a cache."""
    page: int = 0
    """Rows of a page of the cache; 0 without pages."""
    appended: int = 5
    """New rows of keys and values."""
    rotary: str = ""
    """``interleaved`` or ``half``."""
    rotary_dim: int = 16

    @property
    def forward(self) -> Call | None:
        """The forward call whose dropout a backward call repeats; None for other calls."""
        repeats = self.api == "fmha_bwd" and self.dropout
        return replace(self, name=f"forward of {self.name}", api="fmha_fwd") if repeats else None

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        return 1 / math.sqrt(self.dim)

    @property
    def pages(self) -> int:
        """The pages of a sequence in the cache."""
        return self.cache // self.page if self.page else 0

    @property
    def uses_cache(self) -> bool:
        """Whether keys and values are in a cache."""
        return self.api in ("fmha_fwd_splitkv", "fmha_fwd_appendkv")

    @property
    def gradient_parts(self) -> int:
        """How many parts of the gradient of queries are added at the end."""
        return -(-max(self.keys) // (128 if self.dim <= 128 else 64)) if self.deterministic else 1

    def buffers(self) -> dict[str, Buffer]:
        """Return the memory of the call, by name."""
        batch, rows, columns = len(self.queries), max(self.queries), max(self.keys)
        if self.packed:
            batch, rows, columns = 1, sum(self.queries), sum(self.keys)
        queries = Buffer((batch, rows, self.heads, self.dim))
        keys = Buffer((batch, columns, self.groups, self.dim))
        if self.uses_cache:
            keys = Buffer((batch, self.cache, self.groups, self.dim))
        if self.page:
            keys = Buffer((batch * self.pages, self.page, self.groups, self.dim))
        lse = Buffer((batch, self.heads, rows), "float32")
        found = {"queries": queries, "keys": keys, "values": keys}
        if self.api == "fmha_fwd_appendkv":
            new = Buffer((batch, self.appended, self.groups, self.dim))
            angles = Buffer((self.cache, self.rotary_dim // 2))
            found |= {"new_keys": new, "new_values": new, "cosines": angles, "sines": angles}
        else:
            found |= {"output": queries, "lse": lse}
        if self.api == "fmha_fwd_splitkv":
            found["part_lse"] = Buffer((self.splits, *lse.shape), "float32")
            found["part_output"] = Buffer((self.splits, *lse.shape, self.dim), "float32")
        if self.api == "fmha_bwd":
            wide = replace(keys, shape=(batch, columns, self.heads, self.dim))
            parts = Buffer((self.gradient_parts, *queries.shape), "float32")
            found |= {"gradient": queries, "delta": lse, "query_gradient": queries, "query_gradient_parts": parts}
            found |= {"key_gradient": wide, "value_gradient": wide}
        return found | self._lists(batch, rows, columns)

    def _lists(self, batch: int, rows: int, columns: int) -> dict[str, Buffer]:
        found: dict[str, Buffer] = {}
        if self.packed:
            for name, lengths in (("query_starts", self.queries), ("key_starts", self.keys)):
                found[name] = Buffer((len(lengths) + 1,), "int32", (0, *accumulate(lengths)))
        if self.uses_cache:
            found["lengths"] = Buffer((batch,), "int32", self.keys)
        if self.page:
            found["pages"] = Buffer((batch, self.pages), "int32", tuple(reversed(range(batch * self.pages))))
        if self.alibi:
            found["slopes"] = Buffer((self.heads,), "float32", tuple(2.0**-head for head in range(1, self.heads + 1)))
        if self.dropout:
            found |= {"seed": Buffer((1,), "uint64", (SEED,)), "offset": Buffer((1,), "uint64", (OFFSET,))}
        if self.dropout and self.api == "fmha_fwd":
            found["random"] = Buffer((batch, self.heads, rows, columns), "uint8")
        return found

    def addresses(self) -> dict[str, int]:
        """Return where each buffer is."""
        return {name: FIRST_ADDRESS + number * ADDRESS_STEP for number, name in enumerate(self.buffers())}

    def request(self) -> str:
        """Return what the program of `kernels.compiler.record_calls` reads: the function, and a line for each field."""
        fields = {**self._fields(), **dict(self._memory())}
        lines = [f"{name} {int(value) if isinstance(value, bool) else value}" for name, value in fields.items()]
        return "\n".join((self.api, *lines, ""))

    def _fields(self) -> dict[str, object]:
        """Members of CK's structs with values, by name. An API takes those that its structs have in a release."""
        return {
            "data_type": self.dtype,
            "is_v_rowmajor": True,
            "is_group_mode": self.packed,
            "is_deterministic": self.deterministic,
            "has_lse": True,
            "has_mask": self.causal,
            "has_dropout": bool(self.dropout),
            "mask_type": 2 * self.causal,
            "bias_type": 2 * self.alibi,
            "rope_type": ("", "interleaved", "half").index(self.rotary),
            "rotary_dim": self.rotary_dim if self.rotary else 0,
            "batch": len(self.queries),
            "seqlen_q": sum(self.queries) if self.packed else max(self.queries),
            "seqlen_k": self.cache if self.uses_cache else sum(self.keys) if self.packed else max(self.keys),
            "seqlen_knew": self.appended,
            "max_seqlen_q": max(self.queries),
            "max_seqlen_k": max(self.keys),
            "hdim_q": self.dim,
            "hdim_v": self.dim,
            "nhead_q": self.heads,
            "nhead_k": self.groups,
            "scale": self.scale,
            "scale_s": self.scale,
            "window_size_left": -1,
            "window_size_right": 0 if self.causal else -1,
            "num_splits": self.splits,
            "page_block_size": self.page,
            "batch_stride_block_table": self.pages,
            "p_drop": self.dropout,
            "p_undrop": 1 - self.dropout,
            "s_randval": bool(self.dropout),
        }

    def _memory(self) -> Iterator[tuple[str, object]]:
        """Pointers, and strides in elements."""
        places = self.addresses()
        for name, buffer in self.buffers().items():
            pointer, suffix, axes = _MEMBERS.get(name, ("", "", ()))
            if pointer:
                yield f"{pointer}_ptr", places[name]
            for number, axis in enumerate(axes, 1):
                yield f"{axis}_{suffix}", math.prod(buffer.shape[number:])
        if self.dropout:
            yield "drop_seed_offset", f"{places['seed']} {places['offset']}"


@dataclass(frozen=True)
class Difference:
    """A result of a kernel, compared with float64."""

    name: str
    error: float
    """The largest error, at most `NOT_FINITE`."""
    bound: float


@dataclass(frozen=True)
class CallReport:
    """What the kernels of a call did, in all orders."""

    name: str
    kernels: tuple[str, ...]
    """Those that ran, in order."""
    instructions: int
    """Of all waves."""
    cpu_s: float
    differences: tuple[Difference, ...]
    """For each result, the largest of all orders."""
    findings: tuple[str, ...]
    not_run: str = ""
    """What the emulator does not model; the call has no result then."""

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, each with the names of kernels. What was not run is not known to be wrong."""
        wrong = (each for each in self.differences if each.error > each.bound)
        which = ", ".join(self.kernels)
        return (
            *self.findings,
            *(f"{which}: {each.name} is off by {each.error:.2g}, limit {each.bound:.2g}" for each in wrong),
        )


_ROWS = ("batch_stride", "stride", "nhead_stride")
_HEADS = ("batch_stride", "nhead_stride", "stride")
_MEMBERS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    **{name: (short, short, _ROWS) for name, short in (
        ("queries", "q"), ("keys", "k"), ("values", "v"), ("new_keys", "knew"), ("new_values", "vnew"),
        ("output", "o"), ("gradient", "do"), ("query_gradient", "dq"), ("key_gradient", "dk"), ("value_gradient", "dv"),
    )},
    "lse": ("lse", "lse", _HEADS[:2]),
    "delta": ("d", "lsed", _HEADS[:2]),
    "random": ("rand_val", "randval", _HEADS),
    "part_lse": ("lse_acc", "lse_acc", ("split_stride", *_HEADS[:2])),
    "part_output": ("o_acc", "o_acc", ("split_stride", *_HEADS)),
    "query_gradient_parts": ("dq_acc", "dq_acc", ("split_stride", *_ROWS)),
    "slopes": ("bias", "", ()),
    "lengths": ("seqlen_k", "", ()),
    "pages": ("block_table", "", ()),
    "query_starts": ("seqstart_q", "", ()),
    "key_starts": ("seqstart_k", "", ()),
    "cosines": ("rotary_cos", "", ()),
    "sines": ("rotary_sin", "", ()),
}  # fmt: skip
"""By buffer: the names of its pointer and of its strides, and which strides exist, from the outermost axis."""
