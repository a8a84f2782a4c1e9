"""Rows -> everything that people and installers meet, as one folder that any web server can serve.

Beside the index there are the search page, the doctor as one file, and the list of the wheels. The same rows give the
same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.doctor_facts import doctor_facts
from wheelfactory.site.index import make_pages
from wheelfactory.site.packages import packages_page
from wheelfactory.site.search_page import site_files
from wheelfactory.site.single_file import single_file


def make_site(matrix: Matrix, rows: Sequence[WheelRow], address: str = "", *, docs: bool = False) -> dict[str, bytes]:
    """All files of the site of these rows but its manifest, by path below it; the index for installers comes last.

    It is served at `address`, which is empty if nobody knows; `docs` says that it has ``docs/``. Without an address
    the doctor looks for the manifest beside itself, and the list of wheels has no install lines.
    """
    return {
        **site_files(matrix, rows, docs=docs),
        "doctor.py": single_file(doctor_facts(matrix), address).encode(),
        "packages.md": packages_page(rows, address).encode(),
        **make_pages(rows),
    }
