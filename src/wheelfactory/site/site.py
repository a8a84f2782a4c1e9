"""Rows -> everything that people and installers meet, as one folder that any web server can serve.

Beside the index there are the search page, the doctor as one file, and the list of the wheels. The same rows give the
same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.doctor_facts import doctor_facts
from wheelfactory.site.index import render_index
from wheelfactory.site.packages import packages_page
from wheelfactory.site.search_data import search_data
from wheelfactory.site.single_file import build_single_file

_PAGE = Path(__file__).parent / "page"
_KINDS = (".css", ".html", ".js")


def render_site(matrix: Matrix, rows: Sequence[WheelRow], address: str = "", *, docs: bool = False) -> dict[str, bytes]:
    """All files of the site of these rows but its manifest, by path below it; the index for installers comes last.

    It is served at `address`, which is empty if nobody knows; `docs` says that it has ``docs/``. Without an address
    the doctor looks for the manifest beside itself, and the list of wheels has no install lines.
    """
    return {
        **search_page_files(matrix, rows, docs=docs),
        "doctor.py": build_single_file(doctor_facts(matrix), address).encode(),
        "packages.md": packages_page(rows, address).encode(),
        **render_index(rows),
    }


def search_page_files(matrix: Matrix, rows: Sequence[WheelRow], *, docs: bool) -> dict[str, bytes]:
    """The files of the search page by path below the site: those of the package as they are, and its data.

    The data is a script and not JSON: a page that is opened from a disk may load scripts beside it, and nothing else.
    """
    static = sorted(path for path in _PAGE.rglob("*") if path.suffix in _KINDS)
    return {
        **{path.relative_to(_PAGE).as_posix(): path.read_bytes() for path in static},
        "search/data.js": _script(search_data(matrix, rows, docs=docs)),
    }


def _script(data: Mapping[str, Any]) -> bytes:
    """ASCII, so that no server's idea of the encoding matters; one line a wheel, so that differences can be read."""
    write = json.JSONEncoder(separators=(",", ":")).encode
    wheels = "[\n" + ",\n".join(map(write, data["wheels"])) + "\n]"
    lines = [f"{write(key)}:{wheels if key == 'wheels' else write(value)}" for key, value in data.items()]
    return ("globalThis.wheelfactoryData = {\n" + ",\n".join(lines) + "\n};\n").encode("ascii")
