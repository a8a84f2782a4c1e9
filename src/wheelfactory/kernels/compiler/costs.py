"""The cost of compiling a kernel source, measured earlier or predicted, and shards of sources of nearly equal cost.

Predictions use a table of real compiles (`SEED_COSTS`) until the ledger has measurements of this compiler. Shards are
the same on every machine with the same costs.
"""

from __future__ import annotations

import csv
import heapq
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import median

from wheelfactory.core.strict import read_lines
from wheelfactory.kernels.compiler.targets import HOST, NO_GUARDS, Guards, is_empty, parse_kernel_name

# memory of hipcc and the clang driver beside the large process of a compile (measured with `SEED_COSTS`)
DRIVER_MIB = 100
# CPU seconds to precompile a header (measured with `SEED_COSTS`)
HEADER_CPU_S = 4.0
# CPU seconds and MiB that a compile without a precompiled header takes more, for each target (measured with
# `SEED_COSTS`, medians)
PARSING_CPU_S, _PARSING_MIB = 3.1, 100

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


EMPTY_COST = Cost(0.5, 130, 3264)
"""Device code of an empty source, for any arch (measured with Debian's clang 21.1.8)."""


def _read_seed_costs(path: Path) -> dict[str, dict[str, dict[int, Cost]]]:
    costs: dict[str, dict[str, dict[int, Cost]]] = {"device": defaultdict(dict), "host": defaultdict(dict)}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for part, by_kind in costs.items():
                cost = Cost(float(row[f"{part}_cpu_s"]), int(row[f"{part}_mib"]), int(row[f"{part}_bytes"]))
                by_kind[row["kind"]][int(row["head_dim"])] = cost
    return costs


SEED_COSTS: Mapping[str, Mapping[str, Mapping[int, Cost]]] = _read_seed_costs(
    Path(__file__).with_name("seed_costs.csv")
)
"""Of ``device`` code, for any arch, and of ``host`` code, by kind (`parse_kernel_kind`) and head dim.

One source of each was compiled with Debian's hipcc (clang 21.1.8) for gfx942 and for the host, with precompiled
headers, -O3 and upstream's flags without early inlining, sources of flash-attn 2.8.3, November 2026. The machine was
busy: CPU seconds are divided by 2.5, its slowdown against an idle one.
"""

SEED_ERROR = 0.32
"""Nine of ten predictions by `SEED_COSTS` differ from measured CPU seconds by this share at most, at one speed:
150 compiles of 40 kernels by Debian's hipcc (benchmarks/kernel_parts.py). Their sum is right within 1 %."""


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


def seed_cost(source: str, targets: Sequence[str]) -> Cost:
    """Return the cost from `SEED_COSTS` of compiling a source for these targets.

    One target is compiled with a precompiled header. Several make one ordinary compile, which takes them in turn.
    """
    kind = parse_kernel_kind(source)
    costs = [_seed_cost("host" if target == HOST else "device", *kind) for target in targets]
    if len(costs) == 1:
        return costs[0]
    return Cost(
        cpu_s=sum(cost.cpu_s + PARSING_CPU_S for cost in costs),
        peak_mib=max(cost.peak_mib for cost in costs) + _PARSING_MIB,
        size=sum(cost.size for cost in costs),
    )


def ordinary_cost(source: str, archs: int) -> Cost:
    """Return the cost from `SEED_COSTS` of the ordinary compile of a source for a number of archs."""
    return seed_cost(source, (*map(str, range(archs)), HOST))


@lru_cache
def _seed_cost(part: str, kind: str, dim: int | None) -> Cost:
    by_kind = SEED_COSTS[part]
    cost = by_kind.get(kind, {}).get(dim or 0)
    if cost is not None:
        return cost
    # a head dim or a kind that a later release added costs as much as the worst known one, number by number
    may_be_api = kind.endswith("_api") or not kind
    kinds = [kind] if kind in by_kind else [known for known in by_kind if may_be_api or not known.endswith("_api")]
    known = [cost for kind in kinds for cost in by_kind[kind].values()]
    return Cost(max(c.cpu_s for c in known), max(c.peak_mib for c in known), max(c.size for c in known))


@dataclass(frozen=True)
class Measurement:
    """One compile that ran. Units as in `Cost`."""

    source: str
    targets: tuple[str, ...]
    """Archs and `HOST`."""
    compiler: str
    """`Compiler.content` of the compiler; only compared."""
    cpu_s: float
    peak_mib: int
    size: int

    def to_line(self) -> str:
        """One line of a ledger."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    @property
    def is_plausible(self) -> bool:
        """Whether predictions can be made from it."""
        numbers = (self.cpu_s, self.peak_mib, self.size)
        return bool(self.targets) and min(numbers) > 0 and max(numbers) < _MAX_MEASUREMENT


@dataclass(frozen=True)
class Ledger:
    """Measured compiles, in file order."""

    measurements: tuple[Measurement, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read a ledger file without its damaged lines; empty if there is no file.

        Raises `OSError` if it cannot be read.
        """
        return cls(tuple(entry for entry in read_lines(Measurement, path) if entry.is_plausible))

    @property
    def main_compiler(self) -> str:
        """The compiler with the most measurements; the alphabetically first of several, empty in an empty ledger."""
        # Estimates and shards must be the same on every machine, so they cannot use the compiler of this machine.
        counts = Counter(entry.compiler for entry in self.measurements)
        return min(counts, key=lambda compiler: (-counts[compiler], compiler), default="")

    @cached_property
    def by_source(self) -> Mapping[tuple[str, str], Mapping[tuple[str, ...], Cost]]:
        """Measured costs by compiler and source, then by targets: medians, but the maximum of memory."""
        found: dict[tuple[str, str], dict[tuple[str, ...], list[Measurement]]] = defaultdict(lambda: defaultdict(list))
        for entry in self.measurements:
            found[entry.compiler, entry.source][entry.targets].append(entry)
        return {key: {targets: _middle(entries) for targets, entries in by.items()} for key, by in found.items()}

    @cached_property
    def ratios(self) -> Mapping[str, tuple[float, float, float]]:
        """CPU time, memory and bytes of each compiler divided by `SEED_COSTS`, from sources of measured kinds only."""
        found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for entry in self.measurements:
            if parse_kernel_kind(entry.source)[0] in SEED_COSTS["device"]:
                seed = seed_cost(entry.source, entry.targets)
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


def predict_cost(
    ledger: Ledger, source: str, targets: tuple[str, ...], compiler: str, guards: Guards = NO_GUARDS
) -> Cost:
    """Predict the cost of compiling a source (its name without extension) for these targets.

    That is `EMPTY_COST` for an arch that the source has no code for. Else uses the first available of: a measurement of
    this compiler; one for another arch; `SEED_COSTS` times this compiler's `Ledger.ratios`; `SEED_COSTS`.
    """
    if is_empty(guards.get(source, ""), targets):
        return EMPTY_COST
    known = ledger.by_source.get((compiler, source), {})
    if targets in known:
        return known[targets]
    # device code costs about the same for every arch
    alike = sorted(other for other in known if len(other) == len(targets) and (HOST in other) == (HOST in targets))
    if alike:
        return known[alike[0]]
    seed = seed_cost(source, targets)
    cpu, memory, size = ledger.ratios.get(compiler, (1.0, 1.0, 1.0))
    return Cost(seed.cpu_s * cpu, math.ceil(seed.peak_mib * memory), round(seed.size * size))


def shard_costs(
    ledger: Ledger, sources: Iterable[str], targets: tuple[str, ...], guards: Guards = NO_GUARDS
) -> dict[str, float]:
    """Return the CPU seconds of each source, for cutting shards: the same on every machine with the same ledger."""
    # never the ledger of this machine: other machines would cut different shards
    compiler = ledger.main_compiler
    return {source: predict_cost(ledger, source, targets, compiler, guards).cpu_s for source in sources}


_SHARD = re.compile("([0-9]{1,5})/([0-9]{1,5})")


@dataclass(frozen=True)
class Shard:
    """One of `count` parts; `index` counts from 1. Raises `ValueError` for an index out of range."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ValueError(f"shard {self.index} of {self.count}: the first of N is 1/N, the last N/N")

    def __str__(self) -> str:
        """Such as ``2/6``; the inverse of `parse`."""
        return f"{self.index}/{self.count}"

    @staticmethod
    def names(count: int) -> tuple[str, ...]:
        """``1/6`` to ``6/6``, for a `count` of 6."""
        return tuple(str(Shard(index, count)) for index in range(1, count + 1))

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse ``I/N``. Raises `ValueError` for anything else."""
        match = _SHARD.fullmatch(text)
        if match is None:
            raise ValueError(f"not a shard: {text!r}, one looks like 2/6")
        return cls(int(match[1]), int(match[2]))


def cut_shards(costs: Mapping[str, float], count: int) -> tuple[tuple[str, ...], ...]:
    """Cut the names into `count` shards, each sorted by falling cost, the order to compile in.

    The order of `costs` does not matter.
    """
    shards: list[list[str]] = [[] for _ in range(count)]
    emptiest = [(0.0, number) for number in range(count)]
    # the most expensive first, each to the cheapest shard so far: no two shards then differ by more than one compile
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        load, number = emptiest[0]
        heapq.heapreplace(emptiest, (load + costs[name], number))
        shards[number].append(name)
    return tuple(map(tuple, shards))
