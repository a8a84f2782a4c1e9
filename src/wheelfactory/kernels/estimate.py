"""Estimate the time, memory and disk that compiling a kernel set takes on given runners, and check their limits.

Nothing is compiled, so the estimates are only as accurate as the cost model.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from wheelfactory.build.setup_py import default_jobs
from wheelfactory.kernels.compiler.costs import (
    SEED_ERROR,
    Cost,
    Ledger,
    Shard,
    cut_shards,
    predict_cost,
    shard_costs,
)
from wheelfactory.kernels.compiler.request import MAX_ARGUMENT_BYTES, link_argument_bytes
from wheelfactory.kernels.compiler.schedule import jobs_after_kill
from wheelfactory.kernels.compiler.targets import is_empty
from wheelfactory.kernels.kernel_set import predict_cpu_s
from wheelfactory.kernels.source_list import SourceList
from wheelfactory.matrix.forms import ASSET_BYTES

# time limit of a job on a GitHub-hosted runner (GitHub's docs, usage limits)
JOB_HOURS = 6.0
# guaranteed on ubuntu-24.04 (GitHub's docs). A container image may be on the same disk
RUNNER_DISK_GB = 14.0
# limit of one program argument (Linux: MAX_ARG_STRLEN, 32 pages of 4 KiB)
ARGUMENT_KIB = 128.0
OBJECT_COPIES, SOURCE_COPIES = 2, 2
"""Each object is in the build folder and in the store, and hipify copies each source."""
ARCHIVE_RATIO = 0.26
"""Archive bytes per object byte: zstandard at level 9 compresses four objects to 0.21 to 0.26 each and to 0.19
together, and the API objects to 0.03 to 0.10 (2.8.3, gfx942, Debian's clang 21)."""

REMOTE_S = 2.0
"""Seconds that a worker needs for each compile beside it: 1 to 3 with BuildGrid and buildbox on loopback (measured)."""

_MIB, _GIB, _GB = 1 << 20, 1 << 30, 1000**3
# characters reserved for the folder of an object, because torch passes absolute paths to the linker. Ours have 110
_LINK_FOLDER = 160
# bytes of the link command reserved for the environment and the seven binding objects: a generous guess
_LINK_ENVIRONMENT = 24 << 10


@dataclass(frozen=True)
class Runners:
    """The machines that compile: their number, and the resources of each."""

    count: int = 20
    """Parallel hosted jobs of a free account (GitHub's docs)."""
    cores: int = 4
    memory_gib: float = 16.0
    disk_gb: float = RUNNER_DISK_GB


@dataclass(frozen=True)
class Sharding:
    """How to cut kernel sets into shards, and for which machines."""

    runners: Runners
    shards: int | None
    """Number of shards; None for as few as fit the budget."""
    budget_h: float
    """Maximum wall time of a shard, in hours."""


WORKFLOW_SHARDING = Sharding(Runners(), None, 4.0)
"""How a workflow cuts kernel sets. A shard stops after five hours, an hour more than estimated, and a job after six."""


@dataclass(frozen=True)
class ResourceLimit:
    """An estimated value and the limit that it must stay below, in `unit`."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def passed(self) -> bool:
        """Whether the value is below the limit, not equal to it."""
        return self.value < self.limit

    @property
    def text(self) -> str:
        """Such as ``longest shard: 3.30 of 6 h``."""
        return f"{self.name}: {self.value:.2f} of {self.limit:g} {self.unit}"


@dataclass(frozen=True)
class Estimate:
    """The resources that it takes to compile and prove a kernel set. Times are in seconds."""

    sources: int
    without_code: int
    """Those of the sources that have no code for the target (`read_guard`): each compiles in half a second."""
    shard_cpu_s: tuple[float, ...]
    """CPU time of each shard."""
    longest_shard_s: float
    """Wall time of the slowest shard on its runner."""
    wall_s: float
    """Wall time of all shards on all runners."""
    cluster_s: float
    """Wall time if the runners are the workers of a cluster (``--remote``), which compiles the set without shards."""
    proof_cpu_s: float
    """CPU time to execute a sample of the kernels."""
    jobs: int
    """Parallel compiles on a runner, few enough that the heaviest fit into its memory together."""
    peak_mib: int
    """Memory of the heaviest `jobs` compiles together."""
    object_bytes: int
    archive_bytes: int
    disk_bytes: int
    """Objects, archive, sources and generated files."""
    limits: tuple[ResourceLimit, ...]
    predicted_from: str
    """The basis of the predictions, as text."""

    @property
    def cpu_s(self) -> float:
        """Total CPU time."""
        return sum(self.shard_cpu_s) + self.proof_cpu_s

    @property
    def imbalance(self) -> float:
        """The CPU time of the largest shard divided by the mean of all shards; 1 is perfect."""
        return max(self.shard_cpu_s) * len(self.shard_cpu_s) / sum(self.shard_cpu_s)

    @property
    def shards(self) -> tuple[str, ...]:
        """``1/6`` to ``6/6``, for a GitHub matrix."""
        return Shard.names(len(self.shard_cpu_s))


@dataclass(frozen=True)
class CostModel:
    """Known compile costs: `ledger` for predictions, `shard_ledger` for cutting shards, the same on every machine."""

    ledger: Ledger
    shard_ledger: Ledger

    @property
    def description(self) -> str:
        """The basis of the predictions, as text."""
        compiler = self.ledger.main_compiler
        count = sum(entry.compiler == compiler for entry in self.ledger.measurements)
        if not count:
            return f"seed table, no measurement (nine of ten compiles within {SEED_ERROR:.0%})"
        return f"ledger with {count} measurements of compiler {compiler[:12]}"


def estimate_set(listed: SourceList, targets: tuple[str, ...], cost_model: CostModel, sharding: Sharding) -> Estimate:
    """Estimate compiling these sources for `targets`. Raises `ValueError` if one compile takes longer than a shard."""
    sources, guards, runners = listed.sources, listed.guards, sharding.runners
    compiler = cost_model.ledger.main_compiler
    costs = {source: predict_cost(cost_model.ledger, source, targets, compiler, guards) for source in sources}
    jobs, peak_mib = fit_jobs(costs.values(), runners)
    times = {source: cost.cpu_s for source, cost in costs.items()}
    cutting = shard_costs(cost_model.shard_ledger, sources, targets, guards)
    count = sharding.shards or min_shard_count(cutting, sharding.budget_h * 3600, jobs, predicted=times)
    parts = [[times[source] for source in part] for part in cut_shards(cutting, count)]
    walls = [wall_time(part, jobs) for part in parts]
    object_bytes = sum(cost.size for cost in costs.values())
    archive_bytes = round(object_bytes * ARCHIVE_RATIO)
    disk_bytes = OBJECT_COPIES * object_bytes + archive_bytes + SOURCE_COPIES * listed.total_bytes
    limits = (
        ResourceLimit("longest shard", max(walls) / 3600, JOB_HOURS, "h"),
        ResourceLimit("memory of a runner", peak_mib / 1024, runners.memory_gib, "GiB"),
        ResourceLimit("disk of a runner", disk_bytes / _GB, runners.disk_gb, "GB"),
        ResourceLimit("archive as a release asset", archive_bytes / _GIB, ASSET_BYTES / _GIB, "GiB"),
        *check_link_limits(sources),
    )
    return Estimate(
        sources=len(sources),
        without_code=sum(is_empty(guards.get(source, ""), targets) for source in sources),
        shard_cpu_s=tuple(map(sum, parts)),
        longest_shard_s=max(walls),
        wall_s=wall_time(walls, runners.count),
        cluster_s=wall_time([time + REMOTE_S for time in times.values()], runners.count * jobs),
        proof_cpu_s=predict_cpu_s(sources, targets),
        jobs=jobs,
        peak_mib=peak_mib,
        object_bytes=object_bytes,
        archive_bytes=archive_bytes,
        disk_bytes=disk_bytes,
        limits=limits,
        predicted_from=cost_model.description,
    )


def wall_time(costs: Iterable[float], jobs: int) -> float:
    """Seconds until all compiles end, with `jobs` at once and the longest first."""
    waiting = sorted(costs, reverse=True)
    free = [0.0] * min(jobs, len(waiting))
    for cost in waiting:
        heapq.heapreplace(free, free[0] + cost)
    return max(free, default=0.0)


def min_shard_count(
    costs: Mapping[str, float], budget_s: float, jobs: int, *, predicted: Mapping[str, float] | None = None
) -> int:
    """The smallest number of shards that each take at most `budget_s` seconds with `jobs` compiles at once.

    `costs` decide how shards are cut; `predicted`, if given, how long they take. Raises `ValueError` if one compile
    alone exceeds the budget.
    """
    times = costs if predicted is None else predicted
    longest = max(times.values(), default=0.0)
    if longest > budget_s:
        raise ValueError(f"one compile takes {longest:.0f} s, more than the {budget_s:.0f} s of a shard")
    # rounded down, so that rounding errors of the sum never start the search above the minimum
    count = max(1, int(sum(times.values()) / budget_s / jobs)) if times else 1
    while any(wall_time((times[name] for name in shard), jobs) > budget_s for shard in cut_shards(costs, count)):
        count += 1
    return count


def fit_jobs(costs: Iterable[Cost], runners: Runners) -> tuple[int, int]:
    """Return how many parallel compiles a build on a runner ends up with, and their peak memory in MiB.

    The number is at least one, even if that one does not fit.
    """
    # simulates a build: whenever the heaviest do not fit together, Linux kills one and the build halves its jobs
    heaviest = sorted((cost.job_mib for cost in costs), reverse=True)
    jobs = min(default_jobs(runners.cores, runners.memory_gib), len(heaviest))
    while jobs > 1 and sum(heaviest[:jobs]) > runners.memory_gib * 1024:
        jobs = jobs_after_kill(jobs, jobs)
    return jobs, sum(heaviest[:jobs])


def check_link_limits(sources: Collection[str]) -> tuple[ResourceLimit, ResourceLimit]:
    """Check that the command that links the objects of all sources is not too long."""
    folder = "/" + "f" * (_LINK_FOLDER - 1)
    paths = [f"{folder}/{source}.o" for source in sources]
    total = link_argument_bytes(paths, _LINK_ENVIRONMENT)
    return (
        ResourceLimit("arguments of the link", total / _MIB, MAX_ARGUMENT_BYTES / _MIB, "MiB"),
        ResourceLimit("longest argument of the link", (max(map(len, paths)) + 1) / 1024, ARGUMENT_KIB, "KiB"),
    )
