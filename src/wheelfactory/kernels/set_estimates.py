"""Kernel sets -> what each will take, from its release's sources and what compiles cost, for people and programs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.core.errors import InputError, SourceError
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.estimate import CostModel, Estimate, Runners, estimate_set
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.kernels.source_list import SourceList, list_sources
from wheelfactory.matrix.facts import FlashAttn

_HOUR = 3600

EstimateOrReason: TypeAlias = "Estimate | str"
"""What a kernel set will take, or why that cannot be told."""


@dataclass(frozen=True)
class Sharding:
    """How kernel sets are to be cut, and for which machines; the budget is that of a shard, in hours."""

    runners: Runners
    shards: int | None
    budget_h: float


def read_cost_model(given: Path | None, own: Path) -> CostModel:
    """What to predict by and to cut by.

    A machine's own ledger is for its own predictions: another machine has another one and would cut other shards.
    """
    if given is None:
        return CostModel(Ledger.read(own), Ledger())
    if not given.is_file():
        raise InputError("no such file", str(given), "name a ledger with --ledger FILE, or leave the option out")
    ledger = Ledger.read(given)
    return CostModel(ledger, ledger)


def estimate_sets(
    sets: Sequence[KernelSet],
    knowledge: CostModel,
    wish: Sharding,
    *,
    releases: Mapping[str, FlashAttn],
    cache: Path,
    environ: Mapping[str, str],
) -> list[EstimateOrReason]:
    """The outlook of each set. Raises `InputError` if the budget of a shard is too small for one compile."""

    @functools.cache
    def census_of(version: str) -> SourceList | str:
        """The sources of a release, or why they cannot be had."""
        try:
            return list_sources(version, releases[version], cache, clean_environ(environ))
        except SourceError as error:
            return "; ".join(filter(None, str(error).splitlines()))

    @functools.cache
    def outlook_of(version: str, archs: tuple[str, ...]) -> EstimateOrReason:
        census, runners, budget_s = census_of(version), wish.runners, wish.budget_h * 3600
        if isinstance(census, str):
            return census
        try:
            return estimate_set(
                census.sources, census.total_bytes, archs, knowledge, runners, shards=wish.shards, budget_s=budget_s
            )
        except ValueError as error:
            raise InputError(
                "no number of shards is enough for", f"--budget {wish.budget_h:g}: {error}", "give a shard more hours"
            ) from None

    return [outlook_of(kernel_set.flash_attn, kernel_set.archs) for kernel_set in sets]


def render_estimate(kernel_set: KernelSet, forecast: EstimateOrReason, runners: Runners) -> Iterator[str]:
    """The block of one kernel set."""
    cells = len(kernel_set.cells)
    yield kernel_set.id
    yield f"  cells      {cells}"
    if isinstance(forecast, str):
        yield f"  no forecast, the sources cannot be had: {forecast}"
        return
    compiles, hours = forecast.sources, forecast.cpu_s / _HOUR
    yield f"  sources    {compiles:,}"
    yield f"  shards     {len(forecast.shards)}, the largest {forecast.imbalance:.3f} times the mean"
    yield f"  predicted  from the {forecast.predicted_from}"
    yield f"  CPU        {hours:.1f} h once; {cells} times {hours:.1f} h = {cells * hours:.1f} h if each cell compiled"
    yield f"  compiles   {compiles:,} once; {cells * compiles:,} if each cell compiled"
    yield f"  wall       {forecast.wall_s / _HOUR:.2f} h on {runners.count} x {runners.cores} cores"
    yield f"  memory     {forecast.peak_mib / 1024:.1f} GiB for {forecast.jobs} compiles at once"
    yield (
        f"  disk       {forecast.disk_bytes / 1e9:.2f} GB, of which objects {forecast.object_bytes / 1e9:.2f} "
        f"and archive {forecast.archive_bytes / 1e9:.2f}"
    )
    for limit in forecast.limits:
        held = f"{limit.name}: {limit.value:.2f} of {limit.limit:g} {limit.unit}"
        yield f"  {'pass' if limit.passed else 'FAIL'}       {held}"


def estimate_to_json(kernel_set: KernelSet, forecast: EstimateOrReason, wish: Sharding) -> dict[str, Any]:
    """The same as JSON; ``shards`` can be an axis of a GitHub matrix.

    A set whose sources cannot be had has shards only where their number was given.
    """
    names = {"id": kernel_set.id, "cells": [cell.id for cell in kernel_set.cells]}
    if isinstance(forecast, str):
        count = wish.shards or 0
        numbered = [str(Shard(index, count)) for index in range(1, count + 1)]
        return {**names, "shards": numbered, "unavailable": forecast}
    return {
        **names,
        "sources": forecast.sources,
        "shards": list(forecast.shards),
        "imbalance": round(forecast.imbalance, 4),
        "predicted-from": forecast.predicted_from,
        "cpu-hours": round(forecast.cpu_s / _HOUR, 2),
        "cpu-hours-per-cell": round(forecast.cpu_s / _HOUR * len(kernel_set.cells), 2),
        "wall-hours": round(forecast.wall_s / _HOUR, 3),
        "longest-shard-hours": round(forecast.longest_shard_s / _HOUR, 3),
        "runners": wish.runners.count,
        "jobs": forecast.jobs,
        "peak-mib": forecast.peak_mib,
        "object-bytes": forecast.object_bytes,
        "archive-bytes": forecast.archive_bytes,
        "disk-bytes": forecast.disk_bytes,
        "limits": [
            {**asdict(limit), "value": round(limit.value, 4), "passed": limit.passed} for limit in forecast.limits
        ],
    }
