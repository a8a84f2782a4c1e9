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
_SHIFTS = {1: 0, 2: 1, 4: 2}
_ONES = {1: 0x01, 2: 0x0101, 4: 0x01010101}
"""The number 1 in each byte of a unit."""
_NOBODY, _SEVERAL = np.int8(-1), np.int8(-2)
"""In place of the number of a wave."""
_LOST = 0xFFFFFFFF
"""Loaded where nothing is; as a float it is NaN."""


def _in_units(data: Array) -> dict[int, Array]:
    """Return bytes as numbers of 1, 2 and 4 bytes: one for each element costs less than one for each byte."""
    return {unit: data[: data.size // unit * unit].view(f"u{unit}") for unit in _SHIFTS}


class Region:
    """Consecutive bytes of memory.

    `data` is an array of bytes at the address `start`. With `track`, a read of a byte that no store wrote is a finding.
    """

    def __init__(self, name: str, start: int, data: Array, *, track: bool = False) -> None:
        self.name, self.start, self.end = name, start, start + data.size
        self._data = _in_units(data)
        self._written = _in_units(np.zeros(data.size, np.uint8)) if track else None

    def reset(self) -> None:
        """Forget which bytes were written, and fill them with NaN."""
        if self._written is not None:
            self._written[1][:] = 0
        self._data[1][:] = 0xFF

    def load(self, at: Array, size: int, count: int, report: Report) -> Array:
        """Load `count` elements of `size` bytes for each lane, as uint32 of shape (count, lanes); `at` are offsets."""
        unit, places = self._places(at, size, count)
        found = self._read(at, unit, places, report).astype(np.uint32, copy=False)
        if unit == size:
            return found
        parts = found.reshape(count, size, -1) << (8 * _STEPS[size]).astype(np.uint32)
        words: Array = np.bitwise_or.reduce(parts, axis=1)
        return words

    def store(self, at: Array, size: int, values: Array, report: Report) -> None:
        """Store values of shape (count, lanes), `size` bytes each."""
        unit, places = self._places(at, size, len(values))
        if unit != size:
            values = (values[:, None, :] >> (8 * _STEPS[size]).astype(np.uint32)).reshape(places.shape)
        self._write(at, unit, places, values, report)

    def _places(self, at: Array, size: int, count: int) -> tuple[int, Array]:
        """Return the unit of an access, which is bytes if it is not aligned, and its places in that unit."""
        unit = 1 if self.start % size or np.count_nonzero(at & size - 1) else size
        return unit, (at >> _SHIFTS[unit]) + _STEPS[size * count // unit]

    def _read(self, at: Array, unit: int, places: Array, report: Report) -> Array:
        if self._written is not None:
            written = self._written[unit].take(places).view(bool)
            if np.count_nonzero(written) < written.size:
                report(f"read of {self.name} that nobody wrote", self.name, _first(at, ~written, unit))
        return self._data[unit].take(places)

    def _write(self, _at: Array, unit: int, places: Array, values: Array, _report: Report) -> None:
        self._data[unit][places] = values
        if self._written is not None:
            self._written[unit][places] = _ONES[unit]


def _first(at: Array, found: Array, unit: int) -> int:
    """Return the offset of the first lane that has one of the bytes that were found."""
    return int(at[np.flatnonzero(found.any(0))[0] // unit])


class SharedRegion(Region):
    """The local memory of a work-group; it also finds what two waves read and write without a barrier between."""

    def __init__(self, data: Array) -> None:
        super().__init__("local memory", 0, data, track=True)
        self.wave = 0
        """The number of the wave that runs."""
        self._stored_by, self._loaded_by = (_in_units(np.full(data.size, _NOBODY)) for _ in range(2))
        self._storing: set[int] = set()
        self._loading: set[int] = set()

    def pass_barrier(self) -> None:
        """Forget who read and wrote: the waves are past a barrier."""
        for waves, by in ((self._storing, self._stored_by), (self._loading, self._loaded_by)):
            if waves:
                waves.clear()
                by[1].fill(0xFF)  # nobody

    def _read(self, at: Array, unit: int, places: Array, report: Report) -> Array:
        if self._storing - {self.wave}:
            stored_by = self._stored_by[unit].take(places).view(np.int8)
            self._report_other(at, stored_by, unit, "read of local memory after another wave's write", report)
        loaded_by: Array | int = self.wave * _ONES[unit]
        if self._loading - {self.wave}:
            before = self._loaded_by[unit].take(places).view(np.int8)
            mine = (before == _NOBODY) | (before == self.wave)
            loaded_by = np.where(mine, np.int8(self.wave), _SEVERAL).view(f"u{unit}")
        self._loaded_by[unit][places] = loaded_by
        self._loading.add(self.wave)
        return super()._read(at, unit, places, report)

    def _write(self, at: Array, unit: int, places: Array, values: Array, report: Report) -> None:
        if self._loading - {self.wave}:
            loaded_by = self._loaded_by[unit].take(places).view(np.int8)
            self._report_other(at, loaded_by, unit, "write of local memory after another wave's read", report)
        before = self._data[unit].take(places) if self._storing - {self.wave} else None
        super()._write(at, unit, places, values, report)
        if before is not None:
            # several waves often store the same result: only a store that changes another one's depends on order
            changed = before.view(np.uint8) != self._data[unit].take(places).view(np.uint8)
            stored_by = np.where(changed, self._stored_by[unit].take(places).view(np.int8), _NOBODY)
            problem = "write of local memory over another wave's write"
            self._report_other(at, stored_by, unit, problem, report)
        self._stored_by[unit][places] = self.wave * _ONES[unit]
        self._storing.add(self.wave)

    def _report_other(self, at: Array, waves: Array, unit: int, problem: str, report: Report) -> None:
        other = (waves != _NOBODY) & (waves != self.wave)
        if np.count_nonzero(other):
            report(f"{problem}, without a barrier", self.name, _first(at, other, unit))


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
