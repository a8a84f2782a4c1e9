"""Memory in regions: buffers at their addresses, and local or scratch memory at 0. Each access is checked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Report: TypeAlias = Callable[[str, str, int], None]
"""Called with a problem, the name of the nearest region, and the offset in bytes from its start."""

_STEPS = {count: np.arange(count)[:, None] for count in range(1, 65)}
_ALL_WRITTEN = np.uint32(0x01010101)
_NOBODY, _SEVERAL = -1, -2
"""In place of the number of a wave."""
_LOST = 0xFFFFFFFF
"""Loaded where nothing is; as a float it is NaN."""


class Region:
    """Consecutive bytes of memory.

    `data` is an array of bytes at the address `start`. With `track`, a read of a byte that no store wrote is a finding.
    """

    def __init__(self, name: str, start: int, data: Array, *, track: bool = False) -> None:
        self.name, self.start, self.end = name, start, start + data.size
        self._bytes, self._words = data, _words(data) if start % 4 == 0 else None
        self._written = np.zeros(data.size + 3 & ~3, np.uint8) if track else None
        self._written_words = _words(self._written) if self._written is not None else None

    def reset(self) -> None:
        """Forget which bytes were written, and fill them with NaN."""
        if self._written is not None:
            self._written[:] = 0
        self._bytes[:] = 0xFF

    def load(self, at: Array, size: int, count: int, report: Report) -> Array:
        """Load `count` elements of `size` bytes for each lane, as uint32 of shape (count, lanes); `at` are offsets."""
        if size == 4 and self._words is not None and not np.count_nonzero(at & 3):
            index = (at >> 2) + _STEPS[count]
            if self._written_words is not None:
                self._report_unwritten(at, self._written_words.take(index) == _ALL_WRITTEN, report)
            return self._words.take(index)
        index = at + _STEPS[size * count]
        if self._written is not None:
            self._report_unwritten(at, self._written.take(index), report)
        raw = self._bytes.take(index).astype(np.uint32).reshape(count, size, -1)
        words: Array = np.bitwise_or.reduce(raw << (8 * _STEPS[size]).astype(np.uint32), axis=1)
        return words

    def _report_unwritten(self, at: Array, written: Array, report: Report) -> None:
        if np.count_nonzero(written) < written.size:
            report(f"read of {self.name} that nobody wrote", self.name, int(at[~written.all(0)][0]))

    def store(self, at: Array, size: int, values: Array, _report: Report) -> None:
        """Store values of shape (count, lanes), `size` bytes each."""
        count = len(values)
        if size == 4 and self._words is not None and not np.count_nonzero(at & 3):
            index = (at >> 2) + _STEPS[count]
            self._words[index] = values
            if self._written_words is not None:
                self._written_words[index] = _ALL_WRITTEN
            return
        index = at + _STEPS[size * count]
        raw = values[:, None, :] >> (8 * _STEPS[size]).astype(np.uint32)
        self._bytes[index] = raw.reshape(size * count, -1).astype(np.uint8)
        if self._written is not None:
            self._written[index] = 1


class SharedRegion(Region):
    """The local memory of a work-group; it also finds what two waves read and write without a barrier between."""

    def __init__(self, data: Array) -> None:
        super().__init__("local memory", 0, data, track=True)
        self.wave = 0
        """The number of the wave that runs."""
        self._stored_by, self._loaded_by = (np.full(data.size, _NOBODY, np.int8) for _ in range(2))
        self._storing: set[int] = set()
        self._loading: set[int] = set()

    def pass_barrier(self) -> None:
        """Forget who read and wrote: the waves are past a barrier."""
        for waves, by in ((self._storing, self._stored_by), (self._loading, self._loaded_by)):
            if waves:
                waves.clear()
                by.fill(_NOBODY)

    def load(self, at: Array, size: int, count: int, report: Report) -> Array:
        """Load as `Region.load` does."""
        index = at + _STEPS[size * count]
        if self._storing - {self.wave}:
            problem = "read of local memory after another wave's write"
            self._report_other(at, self._stored_by.take(index), problem, report)
        loaded_by: Array | int = self.wave
        if self._loading - {self.wave}:
            loaded_by = self._loaded_by.take(index)
            loaded_by = np.where((loaded_by == _NOBODY) | (loaded_by == self.wave), self.wave, _SEVERAL)
        self._loaded_by[index] = loaded_by
        self._loading.add(self.wave)
        return super().load(at, size, count, report)

    def store(self, at: Array, size: int, values: Array, report: Report) -> None:
        """Store as `Region.store` does."""
        index = at + _STEPS[size * len(values)]
        if self._loading - {self.wave}:
            problem = "write of local memory after another wave's read"
            self._report_other(at, self._loaded_by.take(index), problem, report)
        stored_by, before = self._stored_by.take(index), self._bytes.take(index)
        super().store(at, size, values, report)
        if self._storing - {self.wave}:
            # several waves often store the same result: only a store that changes another one's depends on order
            stored_by[before == self._bytes.take(index)] = _NOBODY
            self._report_other(at, stored_by, "write of local memory over another wave's write", report)
        self._stored_by[index] = self.wave
        self._storing.add(self.wave)

    def _report_other(self, at: Array, waves: Array, problem: str, report: Report) -> None:
        other = (waves != _NOBODY) & (waves != self.wave)
        if np.count_nonzero(other):
            report(f"{problem}, without a barrier", self.name, int(at[other.any(0)][0]))


def _words(data: Array) -> Array:
    return data[: data.size // 4 * 4].view(np.uint32)


class Memory:
    """Regions that do not overlap. Accesses outside of them are reported; such loads give all ones."""

    def __init__(self, regions: Iterable[Region], report: Report, *, what: str) -> None:
        self._regions = sorted(regions, key=lambda region: region.start)
        self._starts = [region.start for region in self._regions]
        self._report, self._what = report, what

    def load(self, addresses: Array, size: int, count: int) -> Array:
        """Load as `Region.load` does; `addresses` are int64 of shape (lanes,)."""
        if not addresses.size:
            return np.zeros((count, 0), np.uint32)
        region = self._region_of(addresses, size * count)
        if region is not None:
            return region.load(addresses - region.start, size, count, self._report)
        loaded = np.full((count, addresses.size), _LOST >> 32 - 8 * size, np.uint32)
        for lanes, each in self._split(addresses, size * count, "load"):
            loaded[:, lanes] = each.load(addresses[lanes] - each.start, size, count, self._report)
        return loaded

    def store(self, addresses: Array, size: int, values: Array) -> None:
        """Store as `Region.store` does."""
        if not addresses.size:
            return
        region = self._region_of(addresses, size * len(values))
        if region is not None:
            region.store(addresses - region.start, size, values, self._report)
            return
        for lanes, each in self._split(addresses, size * len(values), "store"):
            each.store(addresses[lanes] - each.start, size, values[:, lanes], self._report)

    def update(self, addresses: Array, size: int, change: Callable[[int, Array], Array]) -> Array:
        """Replace words lane by lane, as atomic instructions do; return the old ones of shape (size / 4, lanes).

        `change` is called with the position of a lane and its old words. Misaligned accesses are reported.
        """
        old = np.zeros((size // 4, addresses.size), np.uint32)
        for lane in range(addresses.size):
            here = addresses[lane : lane + 1]
            if here[0] % size:
                self.report_misaligned(int(here[0]))
            old[:, lane : lane + 1] = self.load(here, 4, size // 4)
            self.store(here, 4, change(lane, old[:, lane : lane + 1]))
        return old

    def report_misaligned(self, address: int) -> None:
        """Report an access at an address that its instruction does not allow."""
        region = self._regions[max(0, bisect_right(self._starts, address) - 1)]
        self._report("misaligned access", region.name, address - region.start)

    def _region_of(self, addresses: Array, size: int) -> Region | None:
        """Return the region that has all of the accesses."""
        # the functions of numpy, because the methods of an array call them through Python
        position = bisect_right(self._starts, int(np.minimum.reduce(addresses))) - 1
        region = self._regions[position] if position >= 0 else None
        return region if region and int(np.maximum.reduce(addresses)) + size <= region.end else None

    def _split(self, addresses: Array, size: int, access: str) -> Iterable[tuple[Array, Region]]:
        """Yield lanes for each region, and report the other lanes."""
        outside = np.ones(addresses.size, bool)
        for region in self._regions:
            lanes = (addresses >= region.start) & (addresses + size <= region.end)
            outside &= ~lanes
            if lanes.any():
                yield np.flatnonzero(lanes), region
        if outside.any():
            first = int(addresses[outside][0])
            near = min(self._regions, key=lambda each: max(each.start - first, first - each.end + 1), default=None)
            name, start = (near.name, near.start) if near else ("memory", 0)
            self._report(f"{access} outside {self._what}", name, first - start)
