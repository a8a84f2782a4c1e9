"""A compile, afterwards -> an SVG picture of it: a bar an object, and the memory that was in use."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from wheelfactory.core.kernel_name import parse_kernel_name
from wheelfactory.kernels.compiler.store import Finished

_KINDS = {
    "bwd": ("backward", "#c2553f"),
    "fwd_splitkv": ("forward, split", "#2f7f8f"),
    "fwd_appendkv": ("forward, append", "#7a5aa8"),
    "fwd": ("forward", "#3f6fb5"),
    "api": ("dispatch", "#b08a1e"),
    "other": ("other", "#8a8a8a"),
}
"""Name and colour by kind; the colours keep apart for those who do not tell red from green."""
_MEMORY = "#444444"

_WIDTH = 1200
_LEFT, _RIGHT, _TOP = 72, 24, 104
"""Pixels beside the bars, and above them for title and legend."""
_LANES, _THICKEST, _GAP = 480, 18, 40
"""Pixels for all lanes, for one, and between lanes and curve."""
_CURVE, _BOTTOM = 140, 44
_PLOT = _WIDTH - _LEFT - _RIGHT
_MOST_STEPS = 2 * _PLOT
"""Points of the curve; more than two a pixel cannot be told apart."""
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between marks of the time axis."""
_MOST_MARKS = 12


@dataclass(frozen=True)
class Bar:
    """A compile as a place in the picture; times in seconds from the first start."""

    entry: Finished
    lane: int
    """From 0; compiles of one lane follow each other."""
    start: float
    end: float


def lay_out(entries: Iterable[Finished]) -> tuple[Bar, ...]:
    """The bars of these compiles, on as few lanes as ran at once; one that ends before it starts takes no time."""
    ordered = sorted(entries, key=lambda entry: (entry.start, entry.end, entry.source))
    begin = ordered[0].start if ordered else 0.0
    running: list[tuple[float, int]] = []
    free: list[int] = []
    bars: list[Bar] = []
    for entry in ordered:
        while running and running[0][0] <= entry.start:
            heapq.heappush(free, heapq.heappop(running)[1])
        lane = heapq.heappop(free) if free else len(running)
        end = max(entry.start, entry.end)
        heapq.heappush(running, (end, lane))
        bars.append(Bar(entry, lane, entry.start - begin, end - begin))
    return tuple(bars)


def memory_curve(bars: Sequence[Bar]) -> tuple[tuple[float, int], ...]:
    """Seconds, and the MiB of all compiles that run from then on, each counted with its peak: an upper bound."""
    changes: Counter[float] = Counter()
    for bar in bars:
        if bar.end > bar.start:
            changes[bar.start] += bar.entry.peak_mib
            changes[bar.end] -= bar.entry.peak_mib
    level, found = 0, [(0.0, 0)]
    for time, change in sorted(changes.items()):
        level += change
        found.append((time, level))
    return tuple(found)


def kind_of(source: str) -> str:
    """What a source is for, by its name: a key of the legend."""
    name = parse_kernel_name(source)
    if name is None:
        return "other"
    return "api" if name.is_api else next((kind for kind in _KINDS if name.operation.startswith(kind)), "other")


def draw(entries: Iterable[Finished], title: str) -> str:
    """The picture as an SVG document of 1200 pixels width."""
    bars = lay_out(entries)
    if not bars:
        return _document(80, [_text(24, 46, f"{title}: nothing was compiled", size=18)])
    lanes = 1 + max(bar.lane for bar in bars)
    thick = min(_THICKEST, _LANES / lanes)
    bottom = _TOP + thick * lanes
    curve = bottom + _GAP
    span = max(bar.end for bar in bars) or 1.0
    parts = [
        *_head(bars, title),
        *_time_axis(span, _TOP, curve + _CURVE),
        *_bars(bars, span, thick),
        _text(12, _TOP - 8, f"{lanes} at once" if lanes > 1 else "one at a time", size=12),
        *_memory(memory_curve(bars), span, curve),
    ]
    return _document(curve + _CURVE + _BOTTOM, parts)


def _document(height: float, parts: Iterable[str]) -> str:
    shape = f'width="{_WIDTH}" height="{height:.0f}" viewBox="0 0 {_WIDTH} {height:.0f}"'
    style = 'font-family="system-ui, sans-serif" fill="#222222"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {shape} {style}>'
    return "\n".join([begin, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])


def _text(x: float, y: float, text: str, *, size: int, anchor: str = "start") -> str:
    plain = "".join(character if character.isprintable() else "?" for character in text)
    plain = plain.encode("utf-8", "replace").decode()
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}">{escape(plain)}</text>'


def _head(bars: Sequence[Bar], title: str) -> Iterator[str]:
    compiled = [bar.entry for bar in bars if not bar.entry.cached]
    hours = sum(entry.cpu_s for entry in compiled) / 3600
    totals = [
        f"{len(bars)} objects",
        f"{hours:.1f} CPU hours",
        f"{_duration(max(bar.end for bar in bars))} from start to end",
        f"largest compile {max((entry.peak_mib for entry in compiled), default=0) / 1024:.1f} GiB",
        f"{len(bars) - len(compiled)} from a cache",
    ]
    yield _text(24, 30, title, size=18)
    yield _text(24, 50, ", ".join(totals), size=13)
    counts = Counter(kind_of(bar.entry.source) for bar in bars)
    x = 24.0
    for kind, (name, colour) in _KINDS.items():
        if counts[kind]:
            label = f"{name} ({counts[kind]})"
            yield f'<rect x="{x:g}" y="60" width="10" height="10" fill="{colour}"/>'
            yield _text(x + 15, 69, label, size=12)
            x += 34 + 6.6 * len(label)  # pixels of a letter at size 12, about
    if len(compiled) < len(bars):
        yield f'<rect x="{x:g}" y="60" width="10" height="10" fill="{_MEMORY}" opacity="0.4"/>'
        yield _text(x + 15, 69, "paler: from a cache", size=12)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _bars(bars: Sequence[Bar], span: float, thick: float) -> Iterator[str]:
    """A path a kind, since one path of many bars is a third of as many rectangles; a bar is ``M x y h width``."""
    yield f'<g fill="none" stroke-width="{thick * 0.86:.2f}">'
    for cached in (False, True):
        for kind, (_, colour) in _KINDS.items():
            chosen = [bar for bar in bars if kind_of(bar.entry.source) == kind and bar.entry.cached is cached]
            if chosen:
                moves = "".join(_move(bar, span, thick) for bar in chosen)
                paler = ' opacity="0.4"' if cached else ""
                yield f"<path class={quoteattr(kind)} stroke={quoteattr(colour)}{paler} d={quoteattr(moves)}/>"
    yield "</g>"


def _move(bar: Bar, span: float, thick: float) -> str:
    x, width = bar.start / span * _PLOT, (bar.end - bar.start) / span * _PLOT
    return f"M{_LEFT + x:.2f} {_TOP + (bar.lane + 0.5) * thick:.2f}h{width:.2f}"


def _time_axis(span: float, top: float, bottom: float) -> Iterator[str]:
    step = next((step for step in _STEPS if span / step <= _MOST_MARKS), 86400 * math.ceil(span / 86400 / _MOST_MARKS))
    for number in range(math.floor(span / step) + 1):
        x = _LEFT + number * step / span * _PLOT
        yield f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="#dddddd"/>'
        yield _text(round(x, 1), bottom + 18, _mark(number * step, step), size=12, anchor="middle")


def _mark(seconds: int, step: int) -> str:
    if step < 60:
        return f"{seconds} s"
    if step < 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"


def _memory(curve: Sequence[tuple[float, int]], span: float, top: float) -> Iterator[str]:
    most = max(level for _, level in curve)
    scale = _CURVE / (most or 1)
    bottom = top + _CURVE
    steps = _thinned(curve, span)
    path = "".join(f"H{_LEFT + time / span * _PLOT:.1f}V{bottom - level * scale:.1f}" for time, level in steps)
    look = f'fill="{_MEMORY}" fill-opacity="0.12" stroke="{_MEMORY}"'
    yield f'<path class="memory" d="M{_LEFT} {bottom:.1f}{path}" {look}/>'
    yield f'<path d="M{_LEFT} {bottom:.1f}H{_WIDTH - _RIGHT}" stroke="#888888"/>'
    yield _text(_LEFT - 6, round(top + 5, 1), f"{most / 1024:.1f} GiB", size=12, anchor="end")
    yield _text(_LEFT - 6, round(bottom + 4, 1), "0", size=12, anchor="end")
    yield _text(12, round(top - 12, 1), "memory in use at most: the peaks of what runs, added up", size=12)


def _thinned(curve: Sequence[tuple[float, int]], span: float) -> Iterator[tuple[float, int]]:
    """The curve with at most one step for half a pixel: the highest there, so that no peak is lost."""
    places: dict[int, tuple[float, int]] = {}
    for time, level in curve:
        place = int(time / span * _MOST_STEPS)
        if place not in places or level >= places[place][1]:
            places[place] = (time, level)
    places[_MOST_STEPS] = (span, 0)
    return iter(sorted(places.values()))
