"""What vector instructions do with the bits of integers: numpy functions of values for each lane, or of one for all."""

from __future__ import annotations

from typing import Any

import numpy as np

from wheelfactory.emulator.table import U32, U64

_MAX = 0xFFFFFFFF


def shift_left(count: Any, value: Any) -> Any:
    """Return a value shifted left; only as many bits of `count` are read as there are places."""
    return value << _places(count, value)


def shift_right(count: Any, value: Any) -> Any:
    """Return a value shifted right, with its sign if it is signed."""
    return value >> _places(count, value)


def _places(count: Any, value: Any) -> Any:
    return (count & count.dtype.type(8 * value.dtype.itemsize - 1)).astype(value.dtype, copy=False)


def saturate(value: Any) -> Any:
    """Return int64 as uint32 with the bits of the nearest int32."""
    return np.clip(value, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(U32)


def pack(low: Any, high: Any) -> Any:
    """Return two numbers of 16 bits as uint32."""
    return low.view(np.uint16).astype(U32) | high.view(np.uint16).astype(U32) << U32(16)


def distance(a: Any, b: Any) -> Any:
    """Return the difference of unsigned numbers without its sign."""
    return np.maximum(a, b) - np.minimum(a, b)


def signed_24(value: Any) -> Any:
    """Return the low 24 bits of int32 with their sign."""
    return value << np.int32(8) >> np.int32(8)


def multiply_unsigned_24(a: Any, b: Any) -> Any:
    """Return the low 32 bits of the product of the low 24 bits."""
    return (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF))


def shift_pair_right(high: Any, low: Any, count: Any) -> Any:
    """Return the low 32 bits of 64 bits shifted right."""
    return (high.astype(U64) << U64(32) | low) >> count.astype(U64) & U64(_MAX)


def reverse(value: Any) -> Any:
    """Return uint32 with its bits in reverse order."""
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        value = value >> U32(shift) & U32(mask) | (value & U32(mask)) << U32(shift)
    return value


def lowest_one(value: Any) -> Any:
    """Return the place of the lowest bit of uint32 that is set; all ones if there is none."""
    lowest = (value & ~value + U32(1)).astype(np.float64)
    return np.where(value == 0, U32(_MAX), (np.frexp(lowest)[1] - 1).astype(U32))


def leading_zeros(value: Any) -> Any:
    """Return how many bits are above the highest one of uint32; all ones if none is set."""
    return np.where(value == 0, U32(_MAX), U32(32) - np.frexp(value.astype(np.float64))[1])


def count_ones(value: Any) -> Any:
    """Return how many bits of uint32 are set."""
    return np.bitwise_count(value).astype(U32)


def count_below(mask: Any, first: int, lanes: int) -> Any:
    """Return for each lane how many bits of `mask`, which stand for lanes from `first`, are of lower lanes."""
    below = np.clip(np.arange(lanes) - first, 0, 32)
    return count_ones(mask & ((U64(1) << below.astype(U64)) - U64(1)).astype(U32))


def extract(value: Any, first: Any, width: Any) -> Any:
    """Return bits of uint32 from a place on."""
    return value >> (first & U32(31)) & (U32(1) << (width & U32(31))) - U32(1)


def extract_signed(value: Any, first: Any, width: Any) -> Any:
    """Return bits of uint32 from a place on as int32, with their sign."""
    width = width & U32(31)
    unused = U32(32) - width & U32(31)
    part = (value >> (first & U32(31)) << unused).view(np.int32) >> unused.astype(np.int32)
    return np.where(width == 0, np.int32(0), part)


def permute_bytes(a: Any, b: Any, selector: Any) -> Any:
    """Return four bytes of the eight of `b` (0 to 3) and `a` (4 to 7), or what selectors over 7 stand for."""
    if not np.ndim(selector) and not selector & U32(0xF8F8F8F8):  # of a scalar register: the same for all lanes
        lanes = np.broadcast(a, b).size
        eight = np.empty((lanes, 2), U32)
        eight[:, 0], eight[:, 1] = b, a
        places = [int(selector) >> 8 * position & 7 for position in range(4)]
        return np.ascontiguousarray(eight.view(np.uint8)[:, places]).view(U32)[:, 0]
    both = a.astype(U64) << U64(32) | b
    result: Any = U32(0)
    for position in range(4):
        wanted = selector >> U32(8 * position) & U32(255)
        part = both >> ((wanted & U32(7)) * U32(8)).astype(U64) & U64(255)
        if (wanted > 7).any():
            sign = both >> ((wanted & U32(3)) * U32(16) + U32(15)).astype(U64) & U64(1)
            other = np.where(wanted < 12, sign * U64(255), np.where(wanted == 12, U64(0), U64(255)))
            part = np.where(wanted > 7, other, part)
        result = result | part.astype(U32) << U32(8 * position)
    return result


def by_truth_table(table: int, a: Any, b: Any, c: Any) -> Any:
    """Return bits by a truth table with 8 rows; `a` is the highest bit of the number of a row."""
    result: Any = U32(0)
    for row in range(8):
        if table >> row & 1:
            result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def add_carry(a: Any, b: Any, carry: Any = 0) -> tuple[Any, Any]:
    """Return the sum of uint32, and whether it is larger than 32 bits."""
    total = a.astype(np.int64) + b + carry
    return total, total > _MAX


def subtract_borrow(a: Any, b: Any, borrow: Any = 0) -> tuple[Any, Any]:
    """Return the difference of uint32, and whether it is negative."""
    rest = a.astype(np.int64) - b - borrow
    return rest & _MAX, rest < 0


def multiply_add(a: Any, b: Any, addend: Any) -> tuple[Any, Any]:
    """Return the low 64 bits of a product of uint32 and an addend, and bit 64 of it."""
    product = a.astype(U64) * b.astype(U64)
    total = product + addend
    return total, total < product


def multiply_add_signed(a: Any, b: Any, addend: Any) -> tuple[Any, Any]:
    """Return the low 64 bits of a product of int32 and an addend, and bit 64 of it, the sign of the exact sum."""
    product = a.astype(np.int64) * b
    total = product + addend
    overflowed = ((product ^ total) & (addend ^ total)) < 0
    return total, (total < 0) ^ overflowed
