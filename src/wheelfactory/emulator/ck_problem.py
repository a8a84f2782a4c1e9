"""The numbers of a call of CK's host API: random inputs, and what float64 gives for them.

Memory that a kernel must write is filled with NaN. Options are as in CK: with `causal`, the last query sees all keys,
and a query adds ``slope * key`` instead of the distance (they differ by a constant for each row, so only in lse).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from wheelfactory.emulator.ck_calls import NOT_FINITE, Call, Difference
from wheelfactory.emulator.dispatch import Buffer
from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.rounding import to_bfloat16

OUTPUT_TOLERANCE, GRADIENT_TOLERANCE = 4.0, 10.0
"""Allowed errors, as multiples of what rounding to the dtype alone gives. Source: upstream's test_flash_attn_ck.py."""

PART_ERROR = 5e-3
"""The allowed absolute error of split results: their weights have the 16-bit dtype of the call."""

LSE_ERROR = 1e-4
"""The allowed absolute error of lse, which has float32: sums of a few hundred terms."""


def encode(values: Array, dtype: str) -> Array:
    """Return float64 in the dtype of a call; bfloat16 as uint16."""
    if dtype == "fp16":
        return np.ascontiguousarray(values, np.float16)
    rounded: Array = to_bfloat16(np.ascontiguousarray(values, np.float32)).astype(np.uint16)
    return rounded


def decode(values: Array) -> Array:
    """Return numbers of a dtype as float64."""
    if values.dtype == np.uint16:
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float64)


@dataclass
class Problem:
    """The memory of a call, by the names of `Call.buffers`, and what it must contain afterwards."""

    call: Call
    arrays: dict[str, Array]
    inputs: Mapping[str, Array]
    """A copy of the arrays before the call, in which 16-bit numbers are float64."""
    random: Array | None
    """Of a backward call with dropout: the bytes that the forward compared, of shape (batch, head, query, key)."""

    @classmethod
    def draw(cls, call: Call, seed: int, random: Array | None = None) -> Problem:
        """Return a problem with random inputs; `random` are the bytes that the forward call compared for dropout."""
        source = np.random.default_rng(seed)
        arrays = {}
        for name, buffer in call.buffers().items():
            if buffer.kind == "data":
                arrays[name] = encode(source.standard_normal(buffer.shape), call.dtype)
            else:
                arrays[name] = np.zeros(buffer.shape, buffer.kind)
            if buffer.values:
                arrays[name].reshape(-1)[...] = buffer.values
        for name in set(_RESULTS[call.api]) & arrays.keys():
            arrays[name].view(np.uint8)[...] = 0xFF  # NaN in each dtype
        problem = cls(call, arrays, {}, random)
        if call.api == "fmha_bwd":
            problem._compute_forward()
        problem.inputs = {name: _copy(array) for name, array in arrays.items()}
        return problem

    def _compute_forward(self) -> None:
        """Fill the results of the forward, which are inputs of the backward."""
        self.inputs = {name: _copy(self.arrays[name]) for name in ("queries", "keys", "values")}
        for number, place, rows, columns in self._sequences():
            attention = self._attend(number, place, rows, columns)
            self.arrays["output"][place, rows] = encode(attention.output, self.call.dtype)
            self.arrays["lse"][place, :, rows] = attention.lse

    def buffers(self) -> list[Buffer]:
        """Return the arrays at the addresses that host code has seen."""
        places, results = self.call.addresses(), _RESULTS[self.call.api]
        return [
            Buffer(name, array.reshape(-1).view(np.uint8), places[name], written=name not in results)
            for name, array in self.arrays.items()
        ]

    def compare(self) -> Iterator[Difference]:
        """Compare what is in the arrays with float64."""
        if self.call.api == "fmha_fwd_appendkv":
            yield from self._compare_cache()
            return
        for number, place, rows, columns in self._sequences():
            attention = self._attend(number, place, rows, columns)
            if self.call.api == "fmha_bwd":
                found = attention.differentiate(self.inputs["gradient"][place, rows])
                gradients = ("query_gradient", rows), ("key_gradient", columns), ("value_gradient", columns)
                for (name, span), expected in zip(gradients, found, strict=True):
                    yield self._difference(name, number, self.arrays[name][place, span], expected, GRADIENT_TOLERANCE)
                continue
            yield self._difference("output", number, self.arrays["output"][place, rows], attention.output)
            lse = self.arrays["lse"][place, :, rows].astype(np.float64)
            same = np.where(lse == attention.lse, 0, np.abs(lse - attention.lse))  # rows without keys have -inf
            yield Difference(f"lse of {number}", _largest(same), LSE_ERROR)
            if self.call.api == "fmha_fwd_splitkv":
                yield Difference(f"parts of {number}", self._combine(place, attention), PART_ERROR)

    def _combine(self, place: int, attention: Attention) -> float:
        """Combine the parts of a sequence in float64, and return the largest error."""
        lse = self.arrays["part_lse"][:, place].astype(np.float64)
        shares = np.exp(lse - np.where(np.isfinite(attention.lse), attention.lse, 0))[..., None]
        parts = np.where(shares > 0, self.arrays["part_output"][:, place], 0)  # a part without keys may be anything
        return _largest(np.abs((shares * parts).sum(0).transpose(1, 0, 2) - attention.output))

    def _difference(
        self, name: str, number: int, found: Array, expected: Array, factor: float = OUTPUT_TOLERANCE
    ) -> Difference:
        rounding = np.abs(decode(encode(expected, self.call.dtype)) - expected).max()
        return Difference(f"{name} of {number}", _largest(np.abs(decode(found) - expected)), factor * float(rounding))

    def _sequences(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Yield the number of each sequence and its place in the batch, and its rows of queries and keys."""
        row = column = 0
        for number, (rows, columns) in enumerate(zip(self.call.queries, self.call.keys, strict=True)):
            place = 0 if self.call.packed else number
            yield number, place, slice(row, row + rows), slice(column, column + columns)
            if self.call.packed:
                row, column = row + rows, column + columns

    def _cache(self, arrays: Mapping[str, Array], name: str, number: int) -> Array:
        """Return the rows of a sequence in the cache."""
        rows: Array = arrays[name][self.arrays["pages"][number] if self.call.page else number]
        return rows.reshape(-1, *rows.shape[2:]) if self.call.page else rows

    def _attend(self, number: int, place: int, rows: slice, columns: slice) -> Attention:
        call, random = self.call, self.arrays.get("random", self.random)
        keys, values = (
            self._cache(self.inputs, name, number) if call.uses_cache else self.inputs[name][place]
            for name in ("keys", "values")
        )
        keep = None
        if random is not None:  # rows are those of all sequences, columns those of one
            keep = random[place][:, rows, : columns.stop - columns.start] <= np.floor((1 - call.dropout) * 255)
        return attend(call, self.inputs["queries"][place, rows], keys[columns], values[columns], keep)

    def _compare_cache(self) -> Iterator[Difference]:
        call = self.call
        for number, length in enumerate(call.keys):
            new = slice(length, length + call.appended)
            places = np.arange(length, length + call.appended)
            for name in ("keys", "values"):
                expected = self._cache(self.inputs, name, number).copy()
                added = self.inputs[f"new_{name}"][number]
                expected[new] = self._rotate(added, places) if name == "keys" else added
                found = self._cache(self.arrays, name, number)
                yield self._difference(name, number, found, expected)
            rows = length + np.arange(max(call.queries)) * call.causal
            rotated = self._rotate(self.inputs["queries"][number], rows)
            yield self._difference("queries", number, self.arrays["queries"][number], rotated)

    def _rotate(self, rows: Array, places: Array) -> Array:
        """Apply rotary embedding for the places of rows in their sequence."""
        width = self.call.rotary_dim
        cosines, sines = (self.inputs[name][places][:, None] for name in ("cosines", "sines"))
        split = width // 2
        first, second = (slice(0, split), slice(split, width))
        if self.call.rotary == "interleaved":
            first, second = slice(0, width, 2), slice(1, width, 2)
        rotated: Array = rows.copy()
        if self.call.rotary:
            rotated[..., first] = rows[..., first] * cosines - rows[..., second] * sines
            rotated[..., second] = rows[..., second] * cosines + rows[..., first] * sines
        return rotated


_RESULTS = {
    "fmha_fwd": ("output", "lse", "random"),
    "fmha_fwd_splitkv": ("output", "lse", "part_lse", "part_output"),
    "fmha_fwd_appendkv": (),
    "fmha_bwd": ("delta", "query_gradient", "key_gradient", "value_gradient"),
}
"""Memory that kernels write before anything reads it. `query_gradient_parts` begins with zeros, as in the bindings."""


def _largest(errors: Array) -> float:
    return float(np.fmin(errors, NOT_FINITE).max())


def _copy(array: Array) -> Array:
    return decode(array) if array.dtype in (np.uint16, np.float16) else array.copy()


@dataclass(frozen=True)
class Attention:
    """Attention of one sequence in float64; tensors are (row, head, dimension), weights (head, query, key)."""

    call: Call
    queries: Array
    keys: Array
    values: Array
    weights: Array
    """Without dropout."""
    kept: Array
    """The factors of dropout."""
    lse: Array
    output: Array

    def differentiate(self, gradient: Array) -> tuple[Array, Array, Array]:
        """Return the gradients of queries, keys and values; for keys and values one for each head of the queries."""
        weights = self.weights * self.kept
        of_weights = np.einsum("qhd,khd->hqk", gradient, self.values) * self.kept
        delta = np.einsum("qhd,qhd->hq", gradient, self.output)
        of_scores = self.weights * (of_weights - delta[..., None]) * self.call.scale
        return (
            np.einsum("hqk,khd->qhd", of_scores, self.keys),
            np.einsum("hqk,qhd->khd", of_scores, self.queries),
            np.einsum("hqk,qhd->khd", weights, gradient),
        )


def attend(call: Call, queries: Array, keys: Array, values: Array, keep: Array | None) -> Attention:
    """Compute attention of one sequence in float64; `keep` are the weights that dropout keeps, None for all."""
    keys, values = (np.repeat(each, call.heads // call.groups, axis=1) for each in (keys, values))
    scores = np.einsum("qhd,khd->hqk", queries, keys) * call.scale
    row, column = np.arange(len(queries))[:, None], np.arange(len(keys))
    distance = row + len(keys) - len(queries) - column
    if call.alibi:
        slopes = (2.0 ** -np.arange(1, call.heads + 1))[:, None, None]
        scores = scores + slopes * (column if call.causal else -np.abs(distance))
    if call.causal:
        scores = np.where(distance < 0, -np.inf, scores)
    largest = np.maximum(scores.max(-1, keepdims=True), np.finfo(np.float64).min)
    exponentials = np.exp(scores - largest)
    total = exponentials.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(total > 0, exponentials / total, 0)
        lse = (np.log(total) + largest)[..., 0]
    lse = np.where(total[..., 0] > 0, lse, -np.inf)
    kept = np.ones(1) if keep is None else keep[:, : len(queries), : len(keys)] / (1 - call.dropout)
    output = np.einsum("hqk,khd->qhd", weights * kept, values)
    return Attention(call, queries, keys, values, weights, kept, lse, output)
