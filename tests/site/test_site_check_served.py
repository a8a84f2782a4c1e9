"""What a site serves is compared with its rows: manifest, index pages and files, on loopback and in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from loopback import Handler, answering, served
from release_factory import flash_attn_wheel, make_release, stub_wheel
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import WheelRow, manifest_bytes, read_manifest
from wheelfactory.release.published_site import PublishedSite, read_site
from wheelfactory.site.check_served import POLL_S, check_cells, check_files, wait_for_site
from wheelfactory.verify.result import GateResult

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
NAME = "flash_attn-2.8.3+rocm64torch2.9triton-1-py3-none-any.whl"
PAGE = "simple/rocm64/torch2.9/triton/flash-attn/index.html"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release directory with the wheel of `CELL` and einops."""
    folder, made = tmp_path / "release", tmp_path / "made"
    make_release(folder, [flash_attn_wheel(made, CELL), stub_wheel(made, "einops", "0.8.2")])
    return folder


@pytest.fixture(params=["http", "directory"])
def address(request: pytest.FixtureRequest, release: Path) -> Iterator[str]:
    """The release as a site: on loopback, and as a directory without a server."""
    if request.param == "directory":
        yield release.as_uri()
        return
    with served(release) as site:
        yield site.url


def never(_seconds: float) -> NoReturn:
    pytest.fail("it waits")


def look(address: str, rows: Sequence[WheelRow]) -> tuple[PublishedSite, Sequence[GateResult]]:
    """Read a site once."""
    return wait_for_site(address, rows, 0, never, {})


def findings(results: Sequence[GateResult]) -> list[str]:
    return [
        f"{result.gate}: {finding.file}: expected {finding.expected}, found {finding.found}"
        for result in results
        for finding in result.findings
    ]


def test_a_site_as_it_was_published_has_no_drift(release: Path, address: str) -> None:
    site, results = look(address, read_manifest(release))
    assert findings([*results, check_files(site)]) == []
    assert [result.detail for result in results] == ["2 rows", "6 pages"]


def test_a_cell_whose_wheels_are_all_yanked_is_a_gap(release: Path) -> None:
    (row,) = [row for row in read_manifest(release) if row.cell]
    yanked = row.model_copy(update={"yanked": "wrong numbers"})
    cells = [Cell.parse(CELL), Cell.parse(CELL.replace("triton", "ck").replace("py3", "cp311"))]

    def gaps(*rows: WheelRow) -> Sequence[str]:
        return findings([check_cells(rows, cells)])

    assert gaps() == gaps(row) == gaps(row, yanked) == []
    assert gaps(yanked) == [f"cells: {CELL}: expected a wheel, found {NAME}, yanked: wrong numbers"]
    assert findings([check_cells([yanked], cells[1:])]) == [], "of a cell that the matrix no longer has"


def test_a_missing_another_and_an_additional_row_are_drift(release: Path) -> None:
    einops, wheel = read_manifest(release)
    published = [
        wheel.model_copy(update={"yanked": "wrong numbers", "url": "https://example.org/a.whl"}),
        einops.model_copy(update={"filename": "einops-0.9-py3-none-any.whl"}),
    ]
    assert findings(look(release.as_uri(), published)[1]) == [
        f"manifest: manifest.jsonl: expected the published row of {NAME}, found another yanked",
        "manifest: manifest.jsonl: expected a row for einops-0.9-py3-none-any.whl, found none",
        "manifest: manifest.jsonl: expected only rows of published wheels, "
        "found a row for einops-0.8.2-py3-none-any.whl",
    ]


OF_MANIFEST = f"the link of the manifest to {NAME}, found another"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("#sha256=", "#sha256=0", f"{OF_MANIFEST} link"),
        ("wheels/", "old/", f"{OF_MANIFEST} link"),
        ("<a ", '<a data-yanked="" ', OF_MANIFEST),
        (f">{NAME}<", ">b.whl<", "only links of the manifest, found another link to b.whl"),
    ],
    ids=["digest", "address", "yank mark", "name"],
)
def test_an_index_page_with_another_link_or_none_at_all_is_drift(
    release: Path, address: str, old: str, new: str, found: str
) -> None:
    text = (release / PAGE).read_text()
    assert old in text
    (release / PAGE).write_text(text.replace(old, new))
    shown = findings(look(address, read_manifest(release))[1])
    assert any(line.startswith(f"index: {PAGE}: expected {found}") for line in shown), shown
    (release / PAGE).unlink()
    (line,) = findings(look(address, read_manifest(release))[1])
    assert line == f"index: {PAGE}: expected a page of the index, found none"


def test_a_missing_or_truncated_wheel_is_drift(release: Path, address: str) -> None:
    path = release / "wheels" / NAME
    (row,) = (row for row in read_manifest(release) if row.cell)
    path.write_bytes(path.read_bytes()[:100])
    (truncated,) = findings([check_files(read_site(address, {}))])
    path.unlink()
    (missing,) = findings([check_files(read_site(address, {}))])
    expected = f"files: {NAME}: expected a file of {row.size} bytes, found"
    assert (truncated, missing) == (f"{expected} 100 bytes", f"{expected} no such file")


def test_no_wheel_is_downloaded(release: Path) -> None:
    path = release / "wheels" / NAME
    with path.open("ab") as file:
        file.truncate(1 << 32)  # 4 GiB; the disk stores nothing of it
    with served(release) as site:
        assert len(findings([check_files(read_site(site.url, {}))])) == 1


def test_a_stale_site_is_read_again_until_it_serves_the_rows(release: Path, tmp_path: Path) -> None:
    rows = read_manifest(release)
    (release / MANIFEST_NAME).write_bytes(manifest_bytes(rows[:1]))
    pauses = []

    def deploy(seconds: float) -> None:
        """The manifest becomes visible first, and the page after it."""
        pauses.append(seconds)
        if len(pauses) == 1:
            (release / PAGE).rename(tmp_path / "page")
            (release / MANIFEST_NAME).write_bytes(manifest_bytes(rows))
        else:
            (tmp_path / "page").rename(release / PAGE)

    with served(release) as site:
        _, results = wait_for_site(site.url, rows, 1000, deploy, {})
    assert findings(results) == []
    assert pauses == [POLL_S, POLL_S]


def test_a_site_that_stays_stale_is_drift_when_the_time_is_up(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_manifest(release)
    (release / MANIFEST_NAME).write_bytes(manifest_bytes(rows[:1]))
    clock = [0.0]
    monkeypatch.setattr("wheelfactory.site.check_served.monotonic", lambda: clock[0])

    def pause(seconds: float) -> None:
        clock[0] += seconds

    with served(release) as site:
        _, results = wait_for_site(site.url, rows, 100, pause, {})
    assert len(findings(results)) == 1
    assert 100 - 2 * POLL_S < clock[0] <= 100
    _, results = wait_for_site(release.as_uri(), rows, 1000, never, {})
    assert len(findings(results)) == 1, "a directory is read once"
    with pytest.raises(InputError, match=r"cannot read the manifest: http://127\.0\.0\.1:"):
        look(site.url, rows)  # it is gone


@pytest.mark.parametrize(
    ("status", "length", "found"),
    [(204, "", "HTTP 204"), (300, "7", "HTTP 300"), (200, "7.0", ""), (200, "7", "7 bytes")],
)
def test_the_size_is_that_of_a_whole_answer(release: Path, status: int, length: str, found: str) -> None:
    def serve(handler: Handler) -> None:
        handler.answer(status, headers={"Content-Length": length})

    with answering(Handler, serve=serve) as url:
        (row,) = [row.model_copy(update={"url": f"{url}/a.whl"}) for row in read_manifest(release)[:1]]
        shown = findings([check_files(PublishedSite("site", (row,)))])
    assert [found in finding for finding in shown] == [True] * bool(found)


def test_a_server_that_fails_is_reported_and_the_other_files_are_checked(release: Path) -> None:
    rows = [row.model_copy(update={"url": "http://127.0.0.1:9/a.whl"}) for row in read_manifest(release)[:1]]
    (release / MANIFEST_NAME).write_bytes(manifest_bytes([*rows, *read_manifest(release)[1:]]))
    (release / "wheels" / NAME).unlink()
    (failing, missing) = findings([check_files(read_site(str(release), {}))])
    assert "found cannot download: http://127.0.0.1:9/a.whl" in failing
    assert missing.endswith("found no such file")
