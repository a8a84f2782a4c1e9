"""Print how much compile work kernel sets save, and how evenly their shards are balanced.

    python benchmarks/kernels.py [--cache DIR]

Compiles and times nothing: the sources are the output of upstream's generator for each release of matrix.yaml
(downloaded once into the cache), the costs come from the built-in table of `wheelfactory.kernels.compiler.costs`. The
same matrix gives the same tables on every machine. docs/reference/plan.md quotes the second.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from zlib import crc32

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import SourceError
from wheelfactory.core.files import MATRIX
from wheelfactory.kernels.compiler.costs import (
    Ledger,
    cut_shards,
    ordinary_cost,
    parse_kernel_kind,
    shard_costs,
)
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.kernels.estimate import CostModel, Runners, Sharding, estimate_set, wall_time
from wheelfactory.kernels.kernel_set import KernelSet, group_kernel_sets, predict_cpu_s
from wheelfactory.kernels.source_list import SourceList, list_sources
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix

RELEASE, TARGETS = "2.8.3", ("gfx942",)
COUNTS = (2, 3, 4, 6, 8, 12, 16, 20, 32)
HOUR = 3600
BY_SEED = CostModel(Ledger(), Ledger())

Parts = Sequence[Sequence[str]]


def available_sources(matrix: Matrix, cache: Path) -> Iterator[tuple[str, SourceList]]:
    """Yield each release with its sources, and print why a release is left out."""
    for version, release in matrix.flash_attn.items():
        try:
            yield version, list_sources(version, release, cache, os.environ)
        except SourceError as error:
            print(f"{version} is left out: {str(error).splitlines()[-1]}\n")


def by_head_dim(sources: Iterable[str]) -> Parts:
    """Split into one shard per OPT_DIM; sources without a head dim go to the first shard."""
    parts: dict[int, list[str]] = {}
    for source in sorted(sources, key=lambda name: parse_kernel_kind(name)[1] or 0):
        dim = parse_kernel_kind(source)[1]
        parts.setdefault(dim or 32, []).append(source)
    return list(parts.values())


def by_hash(sources: Iterable[str], count: int) -> Parts:
    """Split by a checksum of the name, which ignores costs."""
    parts: list[list[str]] = [[] for _ in range(count)]
    for source in sources:
        parts[crc32(source.encode()) % count].append(source)
    return parts


def balance(parts: Parts, costs: Mapping[str, float]) -> float:
    """Return the cost of the largest shard divided by the mean."""
    loads = [sum(costs[source] for source in part) for part in parts]
    return max(loads) * len(loads) / sum(loads)


def print_work(sets: Sequence[KernelSet], known: Mapping[str, SourceList]) -> None:
    """Print compiles and CPU hours of the matrix, a row for each list of releases and target."""
    print("| flash-attn | target | cells | sets | compiles, each cell | once | CPU hours, each cell | once | ratio |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    rows: list[list[float]] = []
    all_cells: set[Cell] = set()
    for releases, targets in dict.fromkeys((item.releases, item.targets) for item in sets):
        listed = next((known[version] for version in releases if version in known), None)
        if listed is None:
            continue
        members = [item for item in sets if (item.releases, item.targets) == (releases, targets)]
        cells, count = sum(len(item.cells) for item in members), len(listed.sources)
        hours = sum(shard_costs(Ledger(), listed.sources, targets, listed.guards).values()) / HOUR
        rows.append([cells, len(members), cells * count, len(members) * count, cells * hours, len(members) * hours])
        all_cells.update(cell for item in members for cell in item.cells)
        print_row(", ".join(releases), " ".join(targets), rows[-1])
    # a cell links several sets, so the cells of the rows do not add up
    print_row("all", "", [len(all_cells), *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))])


def print_steps(sets: Sequence[KernelSet], known: Mapping[str, SourceList]) -> None:
    """Print the CPU hours of all sets as each step was added, with the costs of today."""
    archs, hosts = defaultdict[Cell, list[str]](list), dict[Cell, str]()
    for item in sets:
        for cell in item.cells:
            if item.targets == (HOST,):
                hosts[cell] = item.id
            else:
                archs[cell] += item.targets
    cells = [cell for cell in hosts if cell.flash_attn in known]
    full = {version: (*listed.sources, *listed.left_out) for version, listed in known.items()}
    trimmed = {version: listed.sources for version, listed in known.items()}

    def hours(keyed: Iterable[tuple[object, Cell]], sources: Mapping[str, Sequence[str]]) -> float:
        found = Counter((cell.flash_attn, len(archs[cell])) for cell in dict(keyed).values())
        each = {item: sum(ordinary_cost(name, item[1]).cpu_s for name in sources[item[0]]) / HOUR for item in found}
        return sum(each[item] * count for item, count in found.items())

    used = [(known[item.releases[0]], item.targets) for item in sets if item.releases[0] in known]
    parts = sum(sum(shard_costs(Ledger(), found.sources, targets, found.guards).values()) for found, targets in used)
    proofs = sum(predict_cpu_s(found.sources, targets) for found, targets in used)
    rows = {
        "every cell compiles all its kernels": hours(((cell, cell) for cell in cells), full),
        "once for each release, ROCm and C++ ABI": hours(
            (((cell.flash_attn, hosts[cell]), cell) for cell in cells), full
        ),
        "equal sources of two releases once": hours(((hosts[cell], cell) for cell in cells), full),
        "only kernels that can be called": hours(((hosts[cell], cell) for cell in cells), trimmed),
        "each arch and the host code once, headers precompiled": parts / HOUR,
        "the same, and a sample of each arch executed": (parts + proofs) / HOUR,
    }
    print("| what is compiled | CPU hours |")
    print("|---|--:|")
    for name, value in rows.items():
        print(f"| {name} | {value:,.0f} |")


def print_row(releases: str, target: str, row: Sequence[float]) -> None:
    """Print a row of `print_work`."""
    print(f"| {releases} | {target} | {' | '.join(f'{value:,.0f}' for value in row)} | {row[4] / row[5]:.1f} |")


def off_by_up_to_two(costs: Mapping[str, float]) -> dict[str, float]:
    """Multiply each cost by 0.5 to 2, chosen by a checksum of the name, as if estimates were badly wrong."""
    return {source: cost * 2 ** (crc32(source[::-1].encode()) / (1 << 31) - 1) for source, cost in costs.items()}


def backward_doubled(costs: Mapping[str, float]) -> dict[str, float]:
    """Double the cost of every backward kernel, as if a compiler were slow with one kind of kernel."""
    return {source: cost * (2 if "_bwd_" in source else 1) for source, cost in costs.items()}


def print_balance(sources: Sequence[str]) -> None:
    """Print the balance of shards by cost, by head dim (for its only number of shards), and by hash."""
    costs = shard_costs(Ledger(), sources, TARGETS)
    wrong, slow = off_by_up_to_two(costs), backward_doubled(costs)
    dims = by_head_dim(sources)
    print("| shards | by cost | each cost off by up to 2 | all bwd twice as long | by head dim (OPT_DIM) | by hash |")
    print("|--:|--:|--:|--:|--:|--:|")
    for count in COUNTS:
        ours = cut_shards(costs, count)
        by_dim = f"{balance(dims, costs):.3f}" if count == len(dims) else "-"
        kinds = " | ".join(f"{balance(ours, real):.4f}" for real in (costs, wrong, slow))
        print(f"| {count} | {kinds} | {by_dim} | {balance(by_hash(sources, count), costs):.3f} |")


def print_wall(listed: SourceList) -> None:
    """Print the hours on 20 hosted runners of four cores, and the lower bound of any schedule."""
    runners = Runners()
    costs = shard_costs(Ledger(), listed.sources, TARGETS)
    ideal = max(max(costs.values()), sum(costs.values()) / runners.count / runners.cores) / HOUR
    print("| shards | longest shard, h | all shards on 20 runners, h | over the ideal of 20 x 4 cores |")
    print("|--:|--:|--:|--:|")
    for count in (4, 8, 12, 16, 20, 40, 60):
        made = estimate_set(listed, TARGETS, BY_SEED, Sharding(runners, count, 6))
        wall = made.wall_s / HOUR
        print(f"| {count} | {made.longest_shard_s / HOUR:.3f} | {wall:.3f} | {wall / ideal:.3f} |")
    whole = wall_time(costs.values(), runners.cores) / HOUR
    print(f"\nideal {ideal:.3f} h; one runner, one job: {whole:.1f} h")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--cache", type=Path, default=home / "wheelfactory")
    matrix = load_matrix(MATRIX)
    cache = parser.parse_args().cache
    known = dict(available_sources(matrix, cache))
    sets = group_kernel_sets(matrix, expand(matrix).cells)
    print("Compile work of the CK cells of matrix.yaml:\n")
    print_work(sets, known)
    print("\nThe same after each step, with the same costs:\n")
    print_steps(sets, known)
    print(f"\nLargest shard over the mean, flash-attn {RELEASE}, {' '.join(TARGETS)}:\n")
    print_balance(known[RELEASE].sources)
    print(f"\nWall time, flash-attn {RELEASE}, {' '.join(TARGETS)}:\n")
    print_wall(known[RELEASE])


if __name__ == "__main__":
    main()
