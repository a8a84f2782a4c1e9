"""Render manifest rows as package indexes (PEP 503, with requires-python, core metadata and yank marks). No I/O.

One index per (ROCm, torch, backend): in a flat index, pip would install the highest label, whatever the machine has.
The templates write ``data-core-metadata`` only: its older name makes pip 22.3 to 23.1 refuse every file (measured).
HTML instead of JSON, because a static host cannot send JSON's content type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from wheelfactory.release.manifest import WheelRow

IndexKey = tuple[str, str, str]
"""The folders of an index: ROCm, torch and backend."""


def index_path(key: IndexKey) -> str:
    """The folder of an index below the release: ``simple/rocm64/torch2.9/ck``."""
    return "/".join(("simple", *key))


def render_index(rows: Iterable[WheelRow]) -> dict[str, bytes]:
    """Render every page of every index, by path below the release."""
    templates = Environment(
        loader=PackageLoader("wheelfactory.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    links, files = templates.get_template("links.html"), templates.get_template("files.html")
    pages: dict[str, bytes] = {}
    children: dict[str, set[str]] = defaultdict(set)
    for key, projects in _by_index(rows).items():
        for project, members in projects.items():
            folder = f"{index_path(key)}/{project}"
            above = folder.split("/")
            wheels = "../" * len(above) + "wheels/"
            # quoted, because some servers read a + as a blank
            listed = [(row, row.url or wheels + quote(row.filename)) for row in members]
            pages[f"{folder}/index.html"] = files.render(title=project, files=listed).encode()
            for end in range(1, len(above)):
                children["/".join(above[:end])].add(above[end])
    for folder, names in children.items():
        pages[f"{folder}/index.html"] = links.render(title=folder, names=sorted(names)).encode()
    return pages


def _by_index(rows: Iterable[WheelRow]) -> dict[IndexKey, dict[str, list[WheelRow]]]:
    """The rows of each index by project. Rows without a key (dependencies) are in every index."""
    ordered = sorted(rows, key=lambda row: row.filename)
    indexes: dict[IndexKey, dict[str, list[WheelRow]]] = {}
    for key in dict.fromkeys(row.index_key for row in ordered if row.index_key):
        projects = indexes[key] = defaultdict(list)
        for row in ordered:
            if row.index_key in (key, None):
                projects[row.project].append(row)
    return indexes
