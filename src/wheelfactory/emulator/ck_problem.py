"""The numbers of a call of CK's host API: random inputs, and what float64 gives for them.

Memory that a kernel must write is filled with NaN. Options are as in CK: with `causal`, the last query sees all keys,
and a query adds ``slope * key`` instead of the distance (they differ by a constant for each row, so only in lse).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from wheelfactory.emulator.ck_calls import NOT_FINITE, OFFSET, SEED, Call, Difference
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
    keep: Array | None
    """Of a backward call with dropout: which weights the forward kept, of shape (batch, head, query, key)."""

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
        for name in set(_RESULTS[call.api]) & arrays.keys():
            arrays[name].view(np.uint8)[...] = 0xFF  # NaN in each dtype
        lists = {
            "seed": [SEED],
            "offset": [OFFSET],
            "lengths": call.keys,
            "slopes": 2.0 ** -np.arange(1, call.heads + 1),
            "query_starts": np.cumsum((0, *call.queries)),
            "key_starts": np.cumsum((0, *call.keys)),
        }
        for name in lists.keys() & arrays.keys():
            arrays[name][...] = lists[name]
        if "pages" in arrays:
            arrays["pages"][...] = source.permutation(arrays["pages"].size).reshape(arrays["pages"].shape)
        for name, function in (("cosines", np.cos), ("sines", np.sin)):
            if name in arrays:
                angles = np.random.default_rng(seed + 1).standard_normal(arrays[name].shape)
                arrays[name] = encode(function(angles), call.dtype)
        keep = None if random is None else random <= np.floor((1 - call.dropout) * 255)
        problem = cls(call, arrays, {}, keep)
        if call.api == "fmha_bwd":
            problem._compute_forward()
        problem.inputs = {name: _copy(array) for name, array in arrays.items()}
        return problem

    def _compute_forward(self) -> None:
        """Fill the results of the forward, which are inputs of the backward."""
        self.inputs = {name: _copy(self.arrays[name]) for name in ("queries", "keys", "values")}
        for index, rows, columns in self._sequences():
            attention = self._attend(index, rows, columns)
            self.arrays["output"][index[0], rows] = encode(attention.output, self.call.dtype)
            self.arrays["lse"][index[0], :, rows] = attention.lse

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
        for index, rows, columns in self._sequences():
            call, attention, sequence = self.call, self._attend(index, rows, columns), index[1]
            if call.api == "fmha_bwd":
                gradients = attention.differentiate(self.inputs["gradient"][index[0], rows])
                for name, expected, place in zip(
                    ("query_gradient", "key_gradient", "value_gradient"),
                    gradients,
                    (rows, columns, columns),
                    strict=True,
                ):
                    yield self._difference(
                        f"{name} of {sequence}", self.arrays[name][index[0], place], expected, GRADIENT_TOLERANCE
                    )
                continue
            yield self._difference(
                f"output of {sequence}", self.arrays["output"][index[0], rows], attention.output, OUTPUT_TOLERANCE
            )
            lse = self.arrays["lse"][index[0], :, rows].astype(np.float64)
            same = np.where(lse == attention.lse, 0, np.abs(lse - attention.lse))  # rows without keys have -inf
            yield Difference(f"lse of {sequence}", _largest(same), LSE_ERROR)
            if call.api == "fmha_fwd_splitkv":
                yield Difference(f"parts of {sequence}", self._combine(index[0], attention), PART_ERROR)

    def _combine(self, place: int, attention: Attention) -> float:
        """Combine the parts of a sequence in float64, and return the largest error."""
        lse = self.arrays["part_lse"][:, place].astype(np.float64)
        shares = np.exp(lse - np.where(np.isfinite(attention.lse), attention.lse, 0))[..., None]
        parts = np.where(shares > 0, self.arrays["part_output"][:, place], 0)  # a part without keys may be anything
        return _largest(np.abs((shares * parts).sum(0).transpose(1, 0, 2) - attention.output))

    def _difference(self, name: str, found: Array, expected: Array, factor: float) -> Difference:
        rounding = np.abs(decode(encode(expected, self.call.dtype)) - expected).max()
        return Difference(name, _largest(np.abs(decode(found) - expected)), factor * float(rounding))

    def _sequences(self) -> Iterator[tuple[tuple[int, int], slice, slice]]:
        """Yield the place of each sequence in a batch and its number, and its rows of queries and keys."""
        row = column = 0
        for number, (rows, columns) in enumerate(zip(self.call.queries, self.call.keys, strict=True)):
            yield (0 if self.call.packed else number, number), slice(row, row + rows), slice(column, column + columns)
            if self.call.packed:
                row, column = row + rows, column + columns

    def _cache(self, arrays: Mapping[str, Array], name: str, number: int) -> Array:
        """Return the rows of a sequence in the cache."""
        rows: Array = arrays[name][self.arrays["pages"][number] if self.call.page else number]
        return rows.reshape(-1, *rows.shape[2:]) if self.call.page else rows

    def _attend(self, index: tuple[int, int], rows: slice, columns: slice) -> Attention:
        call, (place, number) = self.call, index
        keys, values = (
            self._cache(self.inputs, name, number) if call.uses_cache else self.inputs[name][place]
            for name in ("keys", "values")
        )
        queries = self.inputs["queries"][place, rows]
        keep = self.keep
        if call.dropout and call.api == "fmha_fwd":
            keep = self.arrays["random"] <= np.floor((1 - call.dropout) * 255)
        if keep is not None:  # rows are those of all sequences, columns those of one
            keep = keep[place][:, rows, : columns.stop - columns.start]
        return attend(call, queries, keys[columns], values[columns], keep)

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
                yield self._difference(f"{name} of {number}", found, expected, OUTPUT_TOLERANCE)
            rows = length + np.arange(max(call.queries)) * call.causal
            rotated = self._rotate(self.inputs["queries"][number], rows)
            yield self._difference(f"queries of {number}", self.arrays["queries"][number], rotated, OUTPUT_TOLERANCE)

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
