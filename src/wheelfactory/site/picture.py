"""Coverage -> an SVG picture of it: for each backend a heat map of ROCm by torch.

Colours come from a style sheet that follows the reader's dark or light mode; what a colour says is also written in
the square, so that nothing depends on telling colours apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from xml.etree import ElementTree as Xml

from packaging.version import Version

from wheelfactory.core.cell import Backend
from wheelfactory.site.coverage import Coverage, Tally
from wheelfactory.site.markdown import count_text, one_line

_WIDE, _HIGH, _GAP = 64, 30, 3
"""Pixels of a square and between squares."""
_LEFT, _TOP, _PANEL = 92, 88, 58
"""Pixels left of the squares for torch, above the first panel, and above the squares of each for its name and ROCm."""
_MARGIN = 16
_MIN_WIDTH = 560
"""Pixels that title and legend need."""
_LETTER = 6.6
"""Pixels of a letter at size 12, about."""
_LEGEND = (
    ("full", "all published"),
    ("part", "some"),
    ("none", "none yet"),
    ("yanked", "some yanked (!)"),
    ("excluded", "excluded"),
)
"""Class of a square, and what it says."""
_NAMES = {Backend.CK: "Composable Kernel", Backend.TRITON: "Triton"}

_STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 12px; background: #ffffff; }
text { fill: #1f2328; }
.ground { fill: #ffffff; }
.title { font-size: 18px; font-weight: 600; }
.name { font-size: 14px; font-weight: 600; }
.number { text-anchor: middle; }
.row { text-anchor: end; }
.full { fill: #9fd3b0; stroke: #2f7d4b; }
.part { fill: #f3dd9b; stroke: #9a7415; }
.none { fill: #ffffff; stroke: #8c959f; stroke-dasharray: 4 3; }
.yanked { fill: #f0b8ad; stroke: #a93a25; }
.excluded { fill: #eaeef2; stroke: none; }
.quiet { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; }
  text { fill: #e6edf3; }
  .ground { fill: #0d1117; }
  .full { fill: #1d5c36; stroke: #57ab78; }
  .part { fill: #5f4a10; stroke: #c9a227; }
  .none { fill: #0d1117; stroke: #7d8590; }
  .yanked { fill: #6e2418; stroke: #e0725c; }
  .excluded { fill: #1c2128; }
  .quiet { fill: #8b949e; }
}
"""

Square = tuple[Backend, str, str]
"""Backend, ROCm, torch."""


def draw(coverage: Coverage) -> str:
    """The picture as an SVG document; the same coverage gives the same bytes."""
    squares: dict[Square, Tally] = coverage.tallies(lambda cell: (cell.backend, cell.rocm, cell.torch))
    backends = [backend for backend in Backend if any(backend == key[0] for key in squares)]
    rocms, torches = _newest_first(key[1] for key in squares), _newest_first(key[2] for key in squares)
    panel = _PANEL + len(torches) * (_HIGH + _GAP)
    width = max(_LEFT + len(rocms) * (_WIDE + _GAP) + _MARGIN, _MIN_WIDTH)
    root = _document(width, _TOP + len(backends) * panel + _MARGIN, coverage)
    for number, backend in enumerate(backends):
        group = Xml.SubElement(root, "g", transform=f"translate(0 {_TOP + number * panel})")
        _heads(group, _NAMES[backend], rocms, torches)
        for torch, rocm in product(torches, rocms):  # in the order of reading
            if tally := squares.get((backend, rocm, torch)):
                place = (_LEFT + rocms.index(rocm) * (_WIDE + _GAP), _PANEL + torches.index(torch) * (_HIGH + _GAP))
                _square(group, tally, f"ROCm {rocm}, torch {torch}, {backend}", place)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode") + "\n"


def _newest_first(versions: Iterable[str]) -> list[str]:
    return sorted(set(versions), key=Version, reverse=True)


def _document(width: int, height: int, coverage: Coverage) -> Xml.Element:
    tally = coverage.tally
    title = f"flash-attn wheels: {tally.published} of {tally.wanted} published"
    told = (
        f"{tally.missing} missing, {tally.yanked} yanked, "
        f"{count_text(tally.combinations, 'combination')} of versions excluded"
    )
    shape = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    names = {"role": "img", "aria-labelledby": "title told"}
    root = Xml.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **shape, **names})
    _child(root, "title", title, id="title")
    _child(root, "desc", f"{told}. A table of ROCm by torch for each backend.", id="told")
    _child(root, "style", _STYLE)
    Xml.SubElement(root, "rect", {"class": "ground", "width": str(width), "height": str(height)})
    _text(root, _MARGIN, 30, title, "title")
    _text(root, _MARGIN, 50, told, "quiet")
    x = float(_MARGIN)
    for kind, label in _LEGEND:
        Xml.SubElement(root, "rect", {"class": kind, "x": f"{x:g}", "y": "64", "width": "14", "height": "12"})
        _text(root, x + 20, 74, label)
        x += 40 + _LETTER * len(label)
    return root


def _heads(group: Xml.Element, name: str, rocms: Sequence[str], torches: Sequence[str]) -> None:
    _text(group, _MARGIN, 26, name, "name")
    _text(group, _LEFT - 8, _PANEL - 8, "ROCm", "row")
    for column, rocm in enumerate(rocms):
        _text(group, _LEFT + column * (_WIDE + _GAP) + _WIDE / 2, _PANEL - 8, rocm, "number")
    for row, torch in enumerate(torches):
        y = _PANEL + row * (_HIGH + _GAP) + _HIGH / 2 + 4
        _text(group, _LEFT - 8, y, f"torch {torch}", "row")


def _square(group: Xml.Element, tally: Tally, name: str, place: tuple[int, int]) -> None:
    """A square with its title, which browsers show on hovering."""
    x, y = place
    kind, shown = _kind(tally)
    square = Xml.SubElement(group, "g")
    _child(square, "title", f"{name}: {_told(tally)}")
    box = {"class": kind, "x": f"{x + 0.5:g}", "y": f"{y + 0.5:g}", "width": str(_WIDE - 1), "height": str(_HIGH - 1)}
    Xml.SubElement(square, "rect", {**box, "rx": "3"})
    _text(square, x + _WIDE / 2, y + _HIGH / 2 + 4, shown, "number quiet" if kind == "excluded" else "number")


def _kind(tally: Tally) -> tuple[str, str]:
    """The class of a square, and what is written in it."""
    if not tally.wanted:
        return "excluded", "\N{EN DASH}"
    if tally.published == tally.wanted:
        kind = "full"
    elif tally.yanked:
        kind = "yanked"
    else:
        kind = "part" if tally.published else "none"
    mark = "!" if kind == "yanked" else ""
    return kind, f"{tally.published}/{tally.wanted}{mark}"


def _told(tally: Tally) -> str:
    excluded = "; ".join(f"{reason} ({count_text(number, 'combination')})" for reason, number in tally.excluded)
    if not tally.wanted:
        return f"excluded: {excluded}"
    others = [f"{number} {state}" for number, state in ((tally.yanked, "yanked"), (tally.missing, "missing")) if number]
    counts = ", ".join([f"{tally.published} of {tally.wanted} published", *others])
    return f"{counts}; excluded: {excluded}" if excluded else counts


def _text(parent: Xml.Element, x: float, y: float, text: str, kind: str = "") -> None:
    place = {"x": f"{x:g}", "y": f"{y:g}"}
    _child(parent, "text", text, **place, **({"class": kind} if kind else {}))


def _child(parent: Xml.Element, tag: str, text: str, **attributes: str) -> None:
    element = Xml.SubElement(parent, tag, attributes)
    element.text = text if tag == "style" else one_line(text)  # XML cannot hold control characters, even escaped
