"""Sequences of different lengths: grouping them into batches, and reading keys from pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")


def runs(lengths: Sequence[T]) -> Iterator[tuple[slice, T]]:
    """Group adjacent equal lengths; each group is one batch."""
    at = 0
    for length, same in groupby(lengths):
        count = sum(1 for _ in same)
        yield slice(at, at + count), length
        at += count


def from_pages(pages: Tensor, table: Tensor, length: int) -> Tensor:
    """Read the first rows of sequences, (batch, length, ...), from pages (pages, page size, ...).

    `table` has the page numbers of each sequence, (batch, pages per sequence). Pages beyond `length` are not read.
    """
    used = -(-length // pages.shape[1])
    return pages[table[:, :used].long()].flatten(1, 2)[:, :length]


def check_pages(pages: Tensor, table: Tensor, batch: int, longest: int) -> None:
    """Check a block table. Raises ValueError for a shape, TypeError for a dtype."""
    if table.dtype.is_floating_point or table.dtype.is_complex:
        raise TypeError(f"block_table must have an integer dtype, not {table.dtype}")
    if table.dim() != 2 or table.shape[0] != batch:
        raise ValueError(f"block_table must be (batch, blocks of a sequence), batch {batch}, not {tuple(table.shape)}")
    room = table.shape[1] * pages.shape[1]
    if longest > room:
        raise ValueError(f"block_table has room for {room} keys of a sequence, one has {longest}")
