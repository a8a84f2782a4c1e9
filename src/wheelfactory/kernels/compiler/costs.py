"""What one compile of a kernel source costs: measured before, or predicted from what was.

Predictions lean on a table of real compiles (`SEED`) until a ledger of this compiler's own is there.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import median

from wheelfactory.core.kernel_name import parse_kernel_name

DRIVER_MIB = 100
"""What hipcc and the clang driver hold beside the one large process of a compile (measured with `SEED`)."""
CPU_PER_ARCH = 0.95
"""CPU time that each further arch adds, as a part of the first: 2.82 to 3.01 times for three archs, four sources
measured (Debian's clang 21). Archs are compiled one after another, so memory does not grow with them."""
SIZE_PER_ARCH = 0.315
"""Bytes of an object that each further arch adds: 1.49 to 1.63 times for three archs, the same four sources."""

_LARGEST = 1e15
"""Of any unit of a measurement; a number of hundreds of digits would end the arithmetic with an error."""


@dataclass(frozen=True)
class Cost:
    """What a compile takes and gives: CPU seconds, MiB of its largest process, bytes of its object."""

    cpu_s: float
    peak_mib: int
    size: int

    @property
    def job_mib(self) -> int:
        """Memory to allow for a compile: that of its largest process and of what stands beside it."""
        return self.peak_mib + DRIVER_MIB


def _cost(cpu_s: float, peak_gib: float, size_kib: int) -> Cost:
    return Cost(cpu_s, round(peak_gib * 1024), size_kib * 1024)


SEED_COSTS: Mapping[str, Mapping[int, Cost]] = {
    "fwd": {
        32: _cost(28.8, 0.87, 129),
        64: _cost(23.0, 0.78, 124),
        128: _cost(23.2, 0.80, 121),
        256: _cost(36, 1.01, 149),
    },
    "bwd": {
        32: _cost(31.1, 1.11, 146),
        64: _cost(37.0, 1.17, 143),
        128: _cost(35.8, 1.11, 155),
        256: _cost(39, 1.17, 142),
    },
    "fwd_splitkv": {
        32: _cost(16.5, 0.60, 96),
        64: _cost(16.1, 0.59, 76),
        128: _cost(18.4, 0.67, 83),
        256: _cost(26.9, 0.79, 122),
    },
    "fwd_splitkv_combine": {128: _cost(19.4, 0.65, 108)},
    "fwd_appendkv": {128: _cost(10.7, 0.42, 77)},
    "bwd_convert_dq": {128: _cost(9.0, 0.36, 68)},
    "bwd_dot_do_o": {128: _cost(14.7, 0.55, 77)},
    "bwd_api": {0: _cost(114, 0.91, 26_500)},
    "fwd_api": {0: _cost(10.0, 0.34, 257)},
    "fwd_splitkv_api": {0: _cost(59.5, 0.62, 15_700)},
    "fwd_appendkv_api": {0: _cost(7.9, 0.32, 33)},
}
"""By kind and head dim, for one arch: one source of each compiled with Debian's hipcc (clang 21.1.8) for gfx942, -O3
and upstream's flags less early inlining, sources of flash-attn 2.8.3, November 2026. The times of the last three were
taken on a busy machine and are divided by how much longer ``bwd_api`` took there (1.94). `parse_kernel_kind` names the kinds."""


def parse_kernel_kind(source: str) -> tuple[str, int | None]:
    """The kind of kernel and its head dim, from the name of a source without extension.

    ``fmha_bwd_dot_do_o_d64_...`` is ``("bwd_dot_do_o", 64)``, ``fmha_fwd_api`` is ``("fwd_api", None)``; the head dim
    is that of Q. The kind of a name of another form is empty.
    """
    name = parse_kernel_name(source)
    if name is None:
        return "", None
    if name.is_api:
        return f"{name.operation}_api", None
    return name.operation, int(name.head_dim.partition("x")[0])


def seed_cost(source: str, archs: int) -> Cost:
    """The cost by `SEED`, for a number of archs.

    A head dim that was not measured costs what the kind's dearest does; a kind that was not measured, as a future
    release may bring, what the dearest kind of its sort (API or kernel) does.
    """
    return _seed_cost(*parse_kernel_kind(source), archs)


@lru_cache
def _seed_cost(kind: str, dim: int | None, archs: int) -> Cost:
    cost = SEED_COSTS.get(kind, {}).get(dim or 0)
    if cost is None:
        may_be_api = kind.endswith("_api") or not kind
        kinds = (
            [kind]
            if kind in SEED_COSTS
            else [known for known in SEED_COSTS if may_be_api or not known.endswith("_api")]
        )
        known = [cost for kind in kinds for cost in SEED_COSTS[kind].values()]
        # the largest of each number, so that no source that it stands for costs more
        cost = Cost(max(c.cpu_s for c in known), max(c.peak_mib for c in known), max(c.size for c in known))
    return _for_archs(cost, 1, archs)


def _for_archs(cost: Cost, measured: int, wanted: int) -> Cost:
    """What was measured with one number of archs, for another."""
    cpu = (1 + CPU_PER_ARCH * (wanted - 1)) / (1 + CPU_PER_ARCH * (measured - 1))
    size = (1 + SIZE_PER_ARCH * (wanted - 1)) / (1 + SIZE_PER_ARCH * (measured - 1))
    return Cost(cost.cpu_s * cpu, cost.peak_mib, round(cost.size * size))


@dataclass(frozen=True)
class Measurement:
    """One compile that really ran; an object out of a compiler cache is none. Units are those of `Cost`."""

    source: str
    archs: tuple[str, ...]
    compiler: str
    """What identifies the compiler, as the journal's writer chose it; compared and never read."""
    cpu_s: float
    peak_mib: int
    size: int

    def to_line(self) -> str:
        """One line of a ledger."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Measurement | None:
        """The inverse of `to_line`; None for a line that is cut short or something else."""
        try:
            document = json.loads(line)
            entry = cls(**{**document, "archs": tuple(document["archs"])})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        texts = (entry.source, entry.compiler, *entry.archs)
        numbers = (entry.cpu_s, entry.peak_mib, entry.size)
        sound = all(isinstance(text, str) for text in texts) and all(map(_is_amount, numbers)) and entry.archs
        return entry if sound else None


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LARGEST


@dataclass(frozen=True)
class Ledger:
    """Measured compiles, in the order of their lines."""

    measurements: tuple[Measurement, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """The ledger of a file, without lines that are torn or something else; an empty one if there is no file.

        Raises `OSError` if it cannot be read.
        """
        if not path.is_file():
            return cls()
        with path.open(encoding="utf-8", errors="replace") as file:
            return cls(tuple(filter(None, map(Measurement.from_line, file))))

    @property
    def main_compiler(self) -> str:
        """The compiler with most measurements; of several the first in the alphabet, and nothing in an empty ledger.

        Whoever only forecasts or cuts has no compiler at hand, and must not choose by what its machine has.
        """
        counts = Counter(entry.compiler for entry in self.measurements)
        return min(counts, key=lambda compiler: (-counts[compiler], compiler), default="")

    @cached_property
    def by_source(self) -> Mapping[tuple[str, str], Mapping[tuple[str, ...], Cost]]:
        """By compiler and source, then by archs: the median of what was measured, and the largest memory."""
        found: dict[tuple[str, str], dict[tuple[str, ...], list[Measurement]]] = defaultdict(lambda: defaultdict(list))
        for entry in self.measurements:
            found[entry.compiler, entry.source][entry.archs].append(entry)
        return {key: {archs: _middle(entries) for archs, entries in by.items()} for key, by in found.items()}

    @cached_property
    def ratios(self) -> Mapping[str, tuple[float, float, float]]:
        """By compiler: its CPU time, memory and bytes over those of `SEED`.

        The median for time and bytes; the largest for memory, and never less than one, because a few light compiles
        must not make room for heavy ones. Sources that `SEED` only guesses do not count.
        """
        found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for entry in self.measurements:
            if parse_kernel_kind(entry.source)[0] in SEED_COSTS:
                seed = seed_cost(entry.source, len(entry.archs))
                ratio = (entry.cpu_s / seed.cpu_s, entry.peak_mib / seed.peak_mib, entry.size / seed.size)
                found[entry.compiler].append(ratio)
        return {
            compiler: (median(r[0] for r in ratios), max(1.0, *(r[1] for r in ratios)), median(r[2] for r in ratios))
            for compiler, ratios in found.items()
        }


def _middle(entries: list[Measurement]) -> Cost:
    cpu, size = median(entry.cpu_s for entry in entries), median(entry.size for entry in entries)
    return Cost(cpu, max(entry.peak_mib for entry in entries), round(size))


def predict_cost(ledger: Ledger, source: str, archs: tuple[str, ...], compiler: str) -> Cost:
    """What compiling a source (its name without extension) for these archs will cost.

    The first of: what this compiler took for it; what it took for another list of archs, by their number; `SEED`
    times this compiler's `Ledger.ratios`; `SEED`.
    """
    known = ledger.by_source.get((compiler, source), {})
    if archs in known:
        return known[archs]
    if known:
        nearest = min(known, key=lambda other: (abs(len(other) - len(archs)), other))
        return _for_archs(known[nearest], len(nearest), len(archs))
    seed = seed_cost(source, len(archs))
    cpu, memory, size = ledger.ratios.get(compiler, (1.0, 1.0, 1.0))
    return Cost(seed.cpu_s * cpu, math.ceil(seed.peak_mib * memory), round(seed.size * size))


def shard_costs(ledger: Ledger, sources: Iterable[str], archs: tuple[str, ...]) -> dict[str, float]:
    """CPU seconds of each source to cut shards by: the same on every machine that is given the same ledger.

    That is the ledger that a person named, or an empty one, never the one that a machine keeps for itself.
    """
    compiler = ledger.main_compiler
    return {source: predict_cost(ledger, source, archs, compiler).cpu_s for source in sources}
