"""The files of the search page: those of the package as they are, and the data as a script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.search_data import search_data

DATA = "search/data.js"
"""A script and not JSON: a page that is opened from a disk may load scripts beside it, and nothing else."""

_PAGE = Path(__file__).parent / "page"
_KINDS = (".css", ".html", ".js")


def site_files(matrix: Matrix, rows: Sequence[WheelRow], *, docs: bool) -> dict[str, bytes]:
    """The search page by path below the site; the same matrix and rows give the same bytes.

    `docs` says whether the site has ``docs/`` to link to. That ``doctor.py``, ``simple/``, ``packages.md`` and
    ``manifest.jsonl`` are there too is up to the caller.
    """
    static = sorted(path for path in _PAGE.rglob("*") if path.suffix in _KINDS)
    return {
        **{path.relative_to(_PAGE).as_posix(): path.read_bytes() for path in static},
        DATA: _script(search_data(matrix, rows, docs=docs)),
    }


def _script(data: Mapping[str, object]) -> bytes:
    """ASCII, so that no server's idea of the encoding matters; one line a wheel, so that differences can be read."""
    lines = [f"{_json(key)}:{_rows(value) if key == 'wheels' else _json(value)}" for key, value in data.items()]
    return ("globalThis.wheelfactoryData = {\n" + ",\n".join(lines) + "\n};\n").encode("ascii")


def _rows(wheels: object) -> str:
    assert isinstance(wheels, list)
    return "[\n" + ",\n".join(map(_json, wheels)) + "\n]"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
