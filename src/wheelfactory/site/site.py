"""Render the site, a folder for any web server: the index, the search page, doctor.py and the list of wheels.

The same rows give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.doctor_file import build_single_file, doctor_facts
from wheelfactory.site.index import render_index
from wheelfactory.site.packages import packages_html, packages_page
from wheelfactory.site.search_data import search_data

_PAGE = Path(__file__).parent / "page"


def render_site(matrix: Matrix, rows: Sequence[WheelRow], address: str = "", *, docs: bool = False) -> dict[str, bytes]:
    """Render every file of the site except the manifest, keyed by path, the index last.

    `address` is where the site is served. If it is empty, doctor.py reads the manifest in its own folder, and the
    list of wheels has no install commands. `docs` says whether the site has ``docs/``.
    """
    return {
        **search_page_files(matrix, rows, docs=docs),
        "doctor.py": build_single_file(doctor_facts(matrix), address).encode(),
        "packages.md": packages_page(matrix, rows, address).encode(),
        "packages.html": packages_html(matrix, rows, address),
        **render_index(rows),
    }


def search_page_files(matrix: Matrix, rows: Sequence[WheelRow], *, docs: bool) -> dict[str, bytes]:
    """The files of the search page by path: the static files, and the data."""
    # the data is a script: a page opened from disk may load scripts, but not JSON
    static = sorted(path for path in _PAGE.rglob("*") if path.suffix in (".css", ".html", ".js"))
    files = {path.relative_to(_PAGE).as_posix(): path.read_bytes() for path in static}
    return {**files, "search/data.js": _script(search_data(matrix, rows, docs=docs))}


def _script(data: Mapping[str, Any]) -> bytes:
    """Render the data as a script."""
    # ASCII, so that a server's charset does not matter; the wheels need no quotes, and one line each is good for diffs
    write = json.JSONEncoder(separators=(",", ":")).encode
    wheels = f"`{data['wheels']}`"
    lines = [f"{write(key)}:{wheels if key == 'wheels' else write(value)}" for key, value in data.items()]
    return ("globalThis.wheelfactoryData = {\n" + ",\n".join(lines) + "\n};\n").encode("ascii")
