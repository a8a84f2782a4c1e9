"""Compare what a site serves with the rows that it should have: its manifest, its index and its wheel files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from time import monotonic

from pypi_simple import Link, RepositoryPage

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.progress import logger
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.published_site import PublishedSite, read_site
from wheelfactory.site.coverage import decisive_rows
from wheelfactory.site.index import render_index
from wheelfactory.verify.result import Finding, GateResult, Status

POLL_S = 15.0
"""Seconds between two looks at a site that is not up to date yet."""

_DEPLOY = "generate the site again: `wheelfactory index`, or the workflow pages"
_REPLACE = "run build.yml, which builds a replacement, or exclude the cell in matrix.yaml"
_UPLOAD = "restore the file, or yank the wheel"


def wait_for_site(
    address: str,
    expected: Sequence[WheelRow],
    seconds: float,
    pause: Callable[[float], None],
    environ: Mapping[str, str],
) -> tuple[PublishedSite, tuple[GateResult, ...]]:
    """Read a site until it serves the expected rows, for at most `seconds`.

    Returns what it serves in the end, and how its manifest and its index compare with the rows.
    A deployment becomes visible minutes after it is reported as done; a directory is read once. `pause` waits for a
    number of seconds. Raises `InputError` if the site cannot be read in the end.
    """
    deadline = monotonic() + (0 if address.startswith("file:") else seconds)
    while True:
        in_time = monotonic() + POLL_S < deadline
        try:
            site = read_site(address, environ)
            results = tuple(_compare(site, expected))
            if not in_time or all(result.status is Status.PASSED for result in results):
                return site, results
            logger.info("waiting for %s: it does not serve the published rows yet", address)
        except InputError as error:
            if not in_time:
                raise
            logger.info("waiting for %s: %s", address, error)
        pause(POLL_S)


def _compare(site: PublishedSite, expected: Sequence[WheelRow]) -> Iterator[GateResult]:
    yield _result("manifest", _manifest_findings(site.rows, expected), f"{len(expected)} rows")
    pages = render_index(site.rows)
    yield _result("index", _index_findings(site, pages), f"{len(pages)} pages")


def _manifest_findings(served: Iterable[WheelRow], expected: Iterable[WheelRow]) -> Iterator[Finding]:
    """Compare rows by file name. Where a file is does not count: a site may have it elsewhere."""
    found = {row.filename: row.model_copy(update={"url": None}) for row in served}
    for row in expected:
        other = found.pop(row.filename, None)
        if other is None:
            yield Finding(MANIFEST_NAME, f"a row for {row.filename}", "none", _DEPLOY)
            continue
        names = [name for name in WheelRow.model_fields if name != "url" and getattr(row, name) != getattr(other, name)]
        if names:
            yield Finding(MANIFEST_NAME, f"the published row of {row.filename}", f"another {', '.join(names)}", _DEPLOY)
    for name in found:
        yield Finding(MANIFEST_NAME, "only rows of published wheels", f"a row for {name}", _DEPLOY)


def _index_findings(site: PublishedSite, pages: Mapping[str, bytes]) -> Iterator[Finding]:
    """Compare the links of each index page with those that the rows of the site give."""
    for path, page in pages.items():
        try:
            served = site.fetch_page(path)
        except InputError as error:
            yield Finding(path, "a page of the index", str(error), error.hint)
            continue
        if served is None:
            yield Finding(path, "a page of the index", "none", _DEPLOY)
            continue
        expected, found = _links(page, f"{site.base}{path}"), _links(served, f"{site.base}{path}")
        for text in sorted(expected.keys() | found.keys()):
            if expected.get(text) != found.get(text):
                wanted = f"the link of the manifest to {text}" if text in expected else "only links of the manifest"
                yield Finding(path, wanted, f"another link to {text}" if text in found else "none", _DEPLOY)


def _links(page: bytes, address: str) -> dict[str, tuple[object, ...]]:
    """Everything about each link of an index page that an installer reads, by its text."""
    return {link.text: _facts(link) for link in RepositoryPage.from_html(page, base_url=address).links}


def _facts(link: Link) -> tuple[object, ...]:
    return link.url, {name: value for name, value in link.attrs.items() if name.startswith("data-")}


def check_files(site: PublishedSite) -> GateResult:
    """Check that the file of every row exists and has the size of its row. Nothing is downloaded."""
    return _result("files", _file_findings(site), f"{len(site.rows)} wheels")


def _file_findings(site: PublishedSite) -> Iterator[Finding]:
    for row in site.rows:
        try:
            size = site.find_size(row)
        except InputError as error:
            yield Finding(row.filename, f"a file of {row.size} bytes", str(error), error.hint)
            continue
        if size != row.size:
            found = "no such file" if size is None else f"{size} bytes"
            yield Finding(row.filename, f"a file of {row.size} bytes", found, _UPLOAD)


def check_cells(rows: Iterable[WheelRow], cells: Iterable[Cell]) -> GateResult:
    """Check that each of these cells can be installed if it was ever published."""
    published = decisive_rows(rows)
    gaps = [row for cell in cells if (row := published.get(cell.id)) and row.yanked]
    found = (Finding(str(row.cell), "a wheel", f"{row.filename}, yanked: {row.yanked}", _REPLACE) for row in gaps)
    return _result("cells", found, f"{len(published)} cells")


def _result(check: str, findings: Iterator[Finding], detail: str) -> GateResult:
    return GateResult.from_findings(check, list(islice(findings, 20)), detail)
