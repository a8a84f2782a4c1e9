"""Everything that is generated from the manifest, as one folder that any web server can serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelfactory.files import locked, write_atomic
from wheelfactory.index.pages import make_pages
from wheelfactory.index.write import write_index
from wheelfactory.manifest import MANIFEST_NAME, WheelRow, write_rows


def write_site(folder: Path, rows: Sequence[WheelRow], others: Mapping[str, str]) -> int:
    """Write the index of rows whose files are elsewhere, their manifest, and `others` by name; how many pages it has.

    The index comes last: what it leads to is there by then.
    """
    assert all(row.url for row in rows)  # a site does not hold the wheels
    pages = make_pages(rows)
    with locked(folder):
        for name, text in others.items():
            write_atomic(folder / name, text.encode())
        write_atomic(folder / MANIFEST_NAME, write_rows(rows))
        write_index(folder, pages)
    return len(pages)
