"""Timeline of a finished compile as trace events, for Perfetto or chrome://tracing: compiles and memory.

The format is Google's Trace Event Format, as in ninjatracing and clang's ``-ftime-trace``: complete events with times
in microseconds, and a counter.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from wheelfactory.kernels.compiler.costs import parse_kernel_kind
from wheelfactory.kernels.compiler.store import ObjectRecord


def render_trace(entries: Iterable[ObjectRecord]) -> str:
    """Render the compiles as a JSON document of trace events; times count from the first start."""
    ordered = sorted(entries, key=lambda entry: (entry.start, entry.end, entry.source))
    begin = ordered[0].start if ordered else 0.0
    spans = [(entry, round((entry.start - begin) * 1e6), round((entry.end - begin) * 1e6)) for entry in ordered]
    events = [*_compiles(spans), *_memory(spans)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _compiles(spans: Iterable[tuple[ObjectRecord, int, int]]) -> Iterator[dict[str, Any]]:
    """Yield an event for each compile, on as few threads as possible."""
    running: list[tuple[int, int]] = []
    free: list[int] = []
    for entry, start, end in spans:
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        thread = heapq.heappop(free) if free else len(running)
        # a clock change can make the duration negative
        heapq.heappush(running, (max(start, end), thread))
        yield {
            "name": f"{entry.source} for {' '.join(entry.targets)}",
            "cat": parse_kernel_kind(entry.source)[0] or "other",
            "ph": "X",
            "ts": start,
            "dur": max(0, end - start),
            "pid": 0,
            "tid": thread,
            "args": {"CPU s": entry.cpu_s, "peak MiB": entry.peak_mib},
        }


def _memory(spans: Iterable[tuple[ObjectRecord, int, int]]) -> Iterator[dict[str, Any]]:
    """The sum of the peak MiB of all running compiles, an upper bound, at each change."""
    changes: Counter[int] = Counter()
    for entry, start, end in spans:
        if end > start:
            changes[start] += entry.peak_mib
            changes[end] -= entry.peak_mib
    level = 0
    for time, change in sorted(changes.items()):
        level += change
        yield {"name": "memory at most", "ph": "C", "ts": time, "pid": 0, "args": {"MiB": level}}
