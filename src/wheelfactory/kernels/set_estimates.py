"""Estimate kernel sets from the sources of their releases, and render the estimates as text and JSON."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from wheelfactory.build.environments import clean_environ
from wheelfactory.core.cell import name_flash_attn
from wheelfactory.core.errors import InputError, SourceError
from wheelfactory.kernels.compiler.costs import Ledger, Shard
from wheelfactory.kernels.estimate import CostModel, Estimate, ResourceLimit, Runners, Sharding, estimate_set
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.kernels.source_list import SourceList, find_cached_list, list_sources
from wheelfactory.matrix.facts import Context

_HOUR = 3600

EstimateOrReason: TypeAlias = "Estimate | str"
"""The estimate of a kernel set, or the reason why it is missing."""

ReadSources: TypeAlias = "Callable[[str], SourceList | str]"
"""Returns the kernel sources of a release by its version, or why they cannot be listed."""


def read_cost_model(given: Path | None, own: Path) -> CostModel:
    """The cost model of the ledger `given`, else of this machine's `own`. Raises `InputError` if `given` is missing."""
    # A machine's own ledger only predicts: machines with different ledgers would cut different shards.
    if given is None:
        return CostModel(Ledger.read(own), Ledger())
    if not given.is_file():
        hint = "name an existing ledger (--measured-costs FILE), or omit the option"
        raise InputError("no such file", str(given), hint)
    ledger = Ledger.read(given)
    return CostModel(ledger, ledger)


def source_reader(context: Context, *, download: bool = True) -> ReadSources:
    """Make a function that lists the kernel sources of each release once.

    A list that is not in the cache takes a download and some 10 s; without `download`, it is unavailable instead.
    """

    @functools.cache
    def read(version: str) -> SourceList | str:
        release = context.matrix.flash_attn[version]
        if not download and find_cached_list(release, context.cache) is None:
            return f"the sources of flash-attn {version} are not in the cache"
        try:
            return list_sources(version, release, context.cache, clean_environ(context.environ))
        except SourceError as error:
            # drop the traceback, whose last line repeats the error
            return "; ".join(line for line in str(error).splitlines() if not re.match(r"$|\s|Traceback ", line))

    return read


def estimate_sets(
    sets: Sequence[KernelSet], cost_model: CostModel, sharding: Sharding, read_sources: ReadSources
) -> list[EstimateOrReason]:
    """Estimate each set.

    Raises `InputError` if the budget of a shard is too small for one compile, or for a wrong digest in the matrix.
    """

    @functools.cache
    def estimate_of(versions: tuple[str, ...], targets: tuple[str, ...]) -> EstimateOrReason:
        # listing all verifies their digests; the estimate needs only one of them
        found = [read_sources(version) for version in versions]
        source_list = next((item for item in found if isinstance(item, SourceList)), found[0])
        if isinstance(source_list, str):
            return source_list
        try:
            return estimate_set(source_list, targets, cost_model, sharding)
        except ValueError as error:
            which = f"--shard-hours {sharding.budget_h:g}: {error}"
            raise InputError("budget too small for one compile", which, "give a shard more hours") from None

    return [estimate_of(kernel_set.releases, kernel_set.targets) for kernel_set in sets]


def _known(estimates: Iterable[EstimateOrReason]) -> list[Estimate]:
    return [estimate for estimate in estimates if not isinstance(estimate, str)]


def shard_hours(estimates: Iterable[EstimateOrReason]) -> list[float]:
    """The wall time of each shard in hours, at most; a set without an estimate has none."""
    return [estimate.longest_shard_s / _HOUR for estimate in _known(estimates) for _ in estimate.shards]


def total_cpu_hours(estimates: Iterable[EstimateOrReason]) -> float:
    """The CPU hours to compile and prove every set once; a set without an estimate counts nothing."""
    return sum(estimate.cpu_s for estimate in _known(estimates)) / _HOUR


def total_cluster_hours(estimates: Iterable[EstimateOrReason]) -> float:
    """The hours in which a cluster compiles every set, one after another; a set without an estimate counts nothing."""
    return sum(estimate.cluster_s for estimate in _known(estimates)) / _HOUR


def render_total(sets: Sequence[KernelSet], estimates: Sequence[EstimateOrReason], runners: Runners) -> Iterator[str]:
    """Render the lines about all kernel sets together: their sum, why some have no estimate, and exceeded limits."""
    if not sets:
        return
    unknown = [estimate for estimate in estimates if isinstance(estimate, str)]
    excluded = f", {len(unknown)} without an estimate not counted" if unknown else ""
    yield f"kernel sets  {len(estimates)}, {total_cpu_hours(estimates):.1f} CPU h in all{excluded}"
    if cluster_h := total_cluster_hours(estimates):
        workers = f"{runners.count} x {runners.cores} cores"
        yield f"  cluster    {cluster_h:.2f} h for all with {workers} as workers (--remote)"
    yield from (f"  no estimate, cannot list the sources: {reason}" for reason in dict.fromkeys(unknown))
    failed: dict[str, list[tuple[ResourceLimit, str]]] = defaultdict(list)
    for kernel_set, estimate in zip(sets, estimates, strict=True):
        for limit in () if isinstance(estimate, str) else estimate.limits:
            if not limit.passed:
                failed[limit.name].append((limit, kernel_set.id))
    for limits in failed.values():
        worst, name = max(limits, key=lambda pair: pair[0].value)
        more = f", the worst of {len(limits)}" if limits[1:] else ""
        yield f"  FAIL       {worst.text} ({name}{more})"


def render_estimate(kernel_set: KernelSet, estimate: EstimateOrReason, runners: Runners) -> Iterator[str]:
    """Render the text block of one kernel set."""
    cells = len(kernel_set.cells)
    yield kernel_set.id
    yield f"  flash-attn {', '.join(map(name_flash_attn, kernel_set.releases))}"
    yield f"  cells      {cells}"
    if isinstance(estimate, str):
        yield f"  no estimate, cannot list the sources: {estimate}"
        return
    compiles, hours = estimate.sources, estimate.cpu_s / _HOUR
    no_code = f", {estimate.without_code:,} of them without code for this arch" if estimate.without_code else ""
    yield f"  sources    {compiles:,}{no_code}"
    yield f"  shards     {len(estimate.shards)}, the largest {estimate.imbalance:.3f} times the mean"
    yield f"  predicted  from the {estimate.predicted_from}"
    yield f"  CPU        {hours:.1f} h once; {cells} times {hours:.1f} h = {cells * hours:.1f} h if each cell compiled"
    yield f"  compiles   {compiles:,} once; {cells * compiles:,} if each cell compiled"
    if estimate.proof_cpu_s:
        yield f"  proof      {estimate.proof_cpu_s / _HOUR:.2f} h of these to execute a sample on an emulator"
    yield f"  wall       {estimate.wall_s / _HOUR:.2f} h on {runners.count} x {runners.cores} cores"
    yield f"  cluster    {estimate.cluster_s / _HOUR:.2f} h with the same machines as workers (kernels --remote)"
    yield f"  memory     {estimate.peak_mib / 1024:.1f} GiB for {estimate.jobs} compiles at once"
    yield (
        f"  disk       {estimate.disk_bytes / 1e9:.2f} GB (objects {estimate.object_bytes / 1e9:.2f}, "
        f"archive {estimate.archive_bytes / 1e9:.2f})"
    )
    for limit in estimate.limits:
        yield f"  {'pass' if limit.passed else 'FAIL'}       {limit.text}"


def estimate_to_json(kernel_set: KernelSet, estimate: EstimateOrReason, sharding: Sharding) -> dict[str, Any]:
    """Render an estimate as JSON; ``shards`` can be an axis of a GitHub matrix.

    Without an estimate, ``shards`` exists only if ``--shards`` gave their number.
    """
    names = {"id": kernel_set.id, "flash-attn": kernel_set.releases, "cells": [cell.id for cell in kernel_set.cells]}
    if isinstance(estimate, str):
        return {**names, "shards": Shard.names(sharding.shards or 0), "unavailable": estimate}
    return {
        **names,
        "sources": estimate.sources,
        "without-code": estimate.without_code,
        "shards": list(estimate.shards),
        "imbalance": round(estimate.imbalance, 4),
        "predicted-from": estimate.predicted_from,
        "cpu-hours": round(estimate.cpu_s / _HOUR, 2),
        "cpu-hours-per-cell": round(estimate.cpu_s / _HOUR * len(kernel_set.cells), 2),
        "proof-cpu-hours": round(estimate.proof_cpu_s / _HOUR, 3),
        "wall-hours": round(estimate.wall_s / _HOUR, 3),
        "cluster-hours": round(estimate.cluster_s / _HOUR, 3),
        "longest-shard-hours": round(estimate.longest_shard_s / _HOUR, 3),
        "runners": sharding.runners.count,
        "jobs": estimate.jobs,
        "peak-mib": estimate.peak_mib,
        "object-bytes": estimate.object_bytes,
        "archive-bytes": estimate.archive_bytes,
        "disk-bytes": estimate.disk_bytes,
        "limits": [
            {**asdict(limit), "value": round(limit.value, 4), "passed": limit.passed} for limit in estimate.limits
        ],
    }
