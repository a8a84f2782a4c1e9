"""Render manifest rows as package indexes (PEP 503, with requires-python, core metadata and yank marks). No I/O.

One index per (ROCm, torch, backend): in a flat index, pip would install the highest label, whatever the machine has.
The templates write ``data-core-metadata`` only: its older name makes pip 22.3 to 23.1 refuse every file (measured).
HTML instead of JSON, because a static host cannot send JSON's content type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from wheelfactory.core.cell import OFFERED_PRODUCTS, PRODUCTS
from wheelfactory.core.label import FALLBACK_INDEX, IndexKey, Label, index_path
from wheelfactory.core.published import wheel_url
from wheelfactory.release.manifest import WheelRow

INDEX_DEPTH = 3
"""The number of folders of an index below ``simple``."""

_INDEX = "Package index of flash-attn wheels for {}: pass its address to pip --index-url or uv --default-index."
_FOLDER = "Package indexes of flash-attn wheels for AMD GPUs, one for each ROCm, torch and backend."


def render_index(rows: Iterable[WheelRow]) -> dict[str, bytes]:
    """Render every page of every index, by path below the release."""
    templates = page_templates()
    links, files = templates.get_template("links.html"), templates.get_template("files.html")
    pages: dict[str, bytes] = {}
    children: dict[str, set[str]] = defaultdict(set)
    newest: dict[str, str] = defaultdict(str)
    for key, projects in _by_index(rows).items():
        for project, members in projects.items():
            folder = f"{index_path(key)}/{project}"
            above = folder.split("/")
            listed = [(row, wheel_url(row.filename, row.url, "../" * len(above))) for row in members]
            about = f"The files of {project} for {_describe(key)}: pip and uv read this page."
            date = newest_date(members)
            pages[f"{folder}/index.html"] = files.render(title=project, about=about, files=listed, date=date).encode()
            for end in range(1, len(above)):
                parent = "/".join(above[:end])
                children[parent].add(above[end])
                newest[parent] = max(newest[parent], date)
    for folder, names in children.items():
        parts = folder.split("/")[1:]
        is_index = len(parts) == INDEX_DEPTH or tuple(parts) == FALLBACK_INDEX
        about = _INDEX.format(_describe(parts)) if is_index else _FOLDER
        # an index links to nothing but its projects (PEP 503)
        home = "" if is_index else "../" * (len(parts) + 1)
        given = {"title": folder, "about": about, "names": sorted(names), "home": home, "date": newest[folder]}
        pages[f"{folder}/index.html"] = links.render(given).encode()
    return pages


def page_templates() -> Environment:
    """The templates of the lists, and of a project for uv."""
    return Environment(
        loader=PackageLoader("wheelfactory.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def newest_date(rows: Iterable[WheelRow]) -> str:
    """The date on which the newest of some rows was published, as ``2026-11-24``."""
    return f"{max(row.published for row in rows):%Y-%m-%d}"


def _describe(key: Sequence[str]) -> str:
    """``ROCm 6.4, torch 2.9, backend ck`` for the folders of an index."""
    if tuple(key) == FALLBACK_INDEX:
        return "every GPU, in pure PyTorch"
    label = Label.parse("".join(key[:2]))
    built = "AMD's torch" if label.amd_torch else "torch"
    return f"ROCm {label.rocm_version}, {built} {label.torch_version}, backend {key[2]}"


def _by_index(rows: Iterable[WheelRow]) -> dict[IndexKey, dict[str, list[WheelRow]]]:
    """The rows of each index by project. A product is in every index with a wheel that requires it, or in all."""
    ordered = sorted(rows, key=lambda row: row.filename)
    indexes: dict[IndexKey, dict[str, list[WheelRow]]] = {}
    for key in dict.fromkeys(row.index_key for row in ordered if row.index_key):
        labels = {row.label for row in ordered if row.label and row.index_key == key}
        required = {name for label in labels for name in Label.parse(label).requires}
        left_out = PRODUCTS.keys() - required - {*OFFERED_PRODUCTS}
        projects = indexes[key] = defaultdict(list)
        for row in ordered:
            if row.index_key in (key, None) and row.project not in left_out:
                projects[row.project].append(row)
    return indexes
