"""Kernel sets and what is forecast of them -> lines for people, and the same for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.forecast import Forecast, Runners
from wheelfactory.kernels.kernel_set import KernelSet

_HOUR = 3600


def lines_of(kernel_set: KernelSet, forecast: Forecast, runners: Runners) -> Iterator[str]:
    """The block of one kernel set."""
    cells, compiles, hours = len(kernel_set.cells), forecast.sources, forecast.cpu_s / _HOUR
    yield kernel_set.id
    yield f"  cells      {cells}"
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


def lines_without(kernel_set: KernelSet, reason: str) -> Iterator[str]:
    """The block of one whose sources cannot be had."""
    yield kernel_set.id
    yield f"  cells      {len(kernel_set.cells)}"
    yield f"  no forecast, the sources cannot be had: {reason}"


def entry_of(kernel_set: KernelSet, forecast: Forecast, runners: Runners) -> dict[str, Any]:
    """The same as JSON; ``shards`` can be an axis of a GitHub matrix."""
    return {
        **_names(kernel_set),
        "sources": forecast.sources,
        "shards": list(forecast.shards),
        "imbalance": round(forecast.imbalance, 4),
        "predicted-from": forecast.predicted_from,
        "cpu-hours": round(forecast.cpu_s / _HOUR, 2),
        "cpu-hours-per-cell": round(forecast.cpu_s / _HOUR * len(kernel_set.cells), 2),
        "wall-hours": round(forecast.wall_s / _HOUR, 3),
        "longest-shard-hours": round(forecast.longest_shard_s / _HOUR, 3),
        "runners": runners.count,
        "jobs": forecast.jobs,
        "peak-mib": forecast.peak_mib,
        "object-bytes": forecast.object_bytes,
        "archive-bytes": forecast.archive_bytes,
        "disk-bytes": forecast.disk_bytes,
        "limits": [
            {
                "name": item.name,
                "value": round(item.value, 4),
                "limit": item.limit,
                "unit": item.unit,
                "passed": item.passed,
            }
            for item in forecast.limits
        ],
    }


def entry_without(kernel_set: KernelSet, reason: str, shards: int | None) -> dict[str, Any]:
    """The JSON of one whose sources cannot be had; it has shards only where their number was given."""
    count = shards or 0
    numbered = [str(Shard(index, count)) for index in range(1, count + 1)]
    return {**_names(kernel_set), "shards": numbered, "unavailable": reason}


def _names(kernel_set: KernelSet) -> dict[str, Any]:
    return {"id": kernel_set.id, "cells": [cell.id for cell in kernel_set.cells]}
