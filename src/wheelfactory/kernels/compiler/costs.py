"""The cost of compiling a kernel source: measured earlier, or predicted from measurements.

Predictions use a table of real compiles (`SEED_COSTS`) until the ledger has measurements of this compiler.
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

# memory of hipcc and the clang driver beside the large process of a compile (measured with `SEED_COSTS`)
DRIVER_MIB = 100
# CPU time that each further arch adds, as a fraction of the first: 2.82 to 3.01 times for three archs (four sources,
# Debian's clang 21). Archs are compiled one after another, so memory does not grow with them
CPU_PER_ARCH = 0.95
# object size that each further arch adds, as a fraction of the first: 1.49 to 1.63 times for three archs
SIZE_PER_ARCH = 0.315

# largest accepted amount, in any unit. A huge integer would raise OverflowError in float arithmetic
_MAX_MEASUREMENT = 1e15


@dataclass(frozen=True)
class Cost:
    """The cost of a compile: CPU seconds, MiB of its largest process, bytes of its object."""

    cpu_s: float
    peak_mib: int
    size: int

    @property
    def job_mib(self) -> int:
        """MiB to allow for a compile: its largest process and the drivers beside it."""
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
and upstream's flags without early inlining, sources of flash-attn 2.8.3, November 2026. The last three were timed on a
busy machine; their times are divided by the slowdown of ``bwd_api`` there (1.94). Kinds: see `parse_kernel_kind`."""


def parse_kernel_kind(source: str) -> tuple[str, int | None]:
    """Parse the kind of kernel and the head dim of Q from the name of a source without extension.

    ``fmha_bwd_dot_do_o_d64_...`` is ``("bwd_dot_do_o", 64)``, ``fmha_fwd_api`` is ``("fwd_api", None)``. The kind of an
    unknown name is empty.
    """
    name = parse_kernel_name(source)
    if name is None:
        return "", None
    if name.is_api:
        return f"{name.operation}_api", None
    return name.operation, int(name.head_dim.partition("x")[0])


def seed_cost(source: str, archs: int) -> Cost:
    """Return the cost from `SEED_COSTS`, for a number of archs."""
    return _seed_cost(*parse_kernel_kind(source), archs)


@lru_cache
def _seed_cost(kind: str, dim: int | None, archs: int) -> Cost:
    cost = SEED_COSTS.get(kind, {}).get(dim or 0)
    if cost is None:
        # a head dim or a kind that a later release added costs as much as the worst known one
        may_be_api = kind.endswith("_api") or not kind
        kinds = (
            [kind]
            if kind in SEED_COSTS
            else [known for known in SEED_COSTS if may_be_api or not known.endswith("_api")]
        )
        known = [cost for kind in kinds for cost in SEED_COSTS[kind].values()]
        # the maximum of each number, to estimate too much rather than too little
        cost = Cost(max(c.cpu_s for c in known), max(c.peak_mib for c in known), max(c.size for c in known))
    return _for_archs(cost, 1, archs)


def _for_archs(cost: Cost, measured: int, archs: int) -> Cost:
    """Scale a cost from one number of archs to another."""
    cpu = (1 + CPU_PER_ARCH * (archs - 1)) / (1 + CPU_PER_ARCH * (measured - 1))
    size = (1 + SIZE_PER_ARCH * (archs - 1)) / (1 + SIZE_PER_ARCH * (measured - 1))
    return Cost(cost.cpu_s * cpu, cost.peak_mib, round(cost.size * size))


@dataclass(frozen=True)
class Measurement:
    """One compile that really ran, not a hit of a compiler cache. Units as in `Cost`."""

    source: str
    archs: tuple[str, ...]
    compiler: str
    """`Compiler.content` of the compiler; only compared."""
    cpu_s: float
    peak_mib: int
    size: int

    def to_line(self) -> str:
        """One line of a ledger."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Measurement | None:
        """Parse a line of `to_line`; None if it is truncated or something else."""
        try:
            document = json.loads(line)
            entry = cls(**{**document, "archs": tuple(document["archs"])})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        texts = (entry.source, entry.compiler, *entry.archs)
        numbers = (entry.cpu_s, entry.peak_mib, entry.size)
        is_valid = all(isinstance(text, str) for text in texts) and all(map(_is_amount, numbers)) and entry.archs
        return entry if is_valid else None


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _MAX_MEASUREMENT


@dataclass(frozen=True)
class Ledger:
    """Measured compiles, in file order."""

    measurements: tuple[Measurement, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read a ledger file without its damaged lines; empty if there is no file.

        Raises `OSError` if it cannot be read.
        """
        if not path.is_file():
            return cls()
        with path.open(encoding="utf-8", errors="replace") as file:
            return cls(tuple(filter(None, map(Measurement.from_line, file))))

    @property
    def main_compiler(self) -> str:
        """The compiler with the most measurements; the alphabetically first of several, empty in an empty ledger."""
        # Estimates and shards must be the same on every machine, so they cannot use the compiler of this machine.
        counts = Counter(entry.compiler for entry in self.measurements)
        return min(counts, key=lambda compiler: (-counts[compiler], compiler), default="")

    @cached_property
    def by_source(self) -> Mapping[tuple[str, str], Mapping[tuple[str, ...], Cost]]:
        """Measured costs by compiler and source, then by archs: medians, but the maximum of memory."""
        found: dict[tuple[str, str], dict[tuple[str, ...], list[Measurement]]] = defaultdict(lambda: defaultdict(list))
        for entry in self.measurements:
            found[entry.compiler, entry.source][entry.archs].append(entry)
        return {key: {archs: _middle(entries) for archs, entries in by.items()} for key, by in found.items()}

    @cached_property
    def ratios(self) -> Mapping[str, tuple[float, float, float]]:
        """CPU time, memory and bytes of each compiler divided by `SEED_COSTS`, from sources of measured kinds only."""
        found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for entry in self.measurements:
            if parse_kernel_kind(entry.source)[0] in SEED_COSTS:
                seed = seed_cost(entry.source, len(entry.archs))
                ratio = (entry.cpu_s / seed.cpu_s, entry.peak_mib / seed.peak_mib, entry.size / seed.size)
                found[entry.compiler].append(ratio)
        # the maximum of memory, at least 1: if light compiles made heavy ones look cheap, a build would run too many
        return {
            compiler: (median(r[0] for r in ratios), max(1.0, *(r[1] for r in ratios)), median(r[2] for r in ratios))
            for compiler, ratios in found.items()
        }


def _middle(entries: list[Measurement]) -> Cost:
    cpu, size = median(entry.cpu_s for entry in entries), median(entry.size for entry in entries)
    return Cost(cpu, max(entry.peak_mib for entry in entries), round(size))


def predict_cost(ledger: Ledger, source: str, archs: tuple[str, ...], compiler: str) -> Cost:
    """Predict the cost of compiling a source (its name without extension) for these archs.

    Uses the first available of: a measurement of this compiler; one for another list of archs, scaled; `SEED_COSTS`
    times this compiler's `Ledger.ratios`; `SEED_COSTS`.
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
    """Return the CPU seconds of each source, for cutting shards: the same on every machine with the same ledger."""
    # never the ledger of this machine: other machines would cut different shards
    compiler = ledger.main_compiler
    return {source: predict_cost(ledger, source, archs, compiler).cpu_s for source in sources}
