"""`wheelfactory status`, `notes` and `ci answer` on directories, manifests and GitHub repositories."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import Cli
from release_factory import flash_attn_wheel, make_release, stub_wheel
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED
from wheelfactory.core.files import ROOT
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import read_manifest

MATRIX = ("--matrix", str(ROOT / "examples/seed-matrix.yaml"))
CELL = "fa2.8.3-rocm6.1-torch2.6.0-py3-triton"
ONLY = (*MATRIX, "--only", "fa2.8.3-rocm6.1-torch2.6.0-*")
INDEX = "simple/rocm61/torch2.6/triton/"
BODY = "### torch\n\n2.6.0+rocm6.1\n\n### Backend\n\ntriton\n"
QUERY = "torch=2.6.0%2Brocm6.1&backend=triton"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release with the wheel of `CELL` and einops, at ``release``."""
    folder, made = tmp_path / "release", tmp_path / "made"
    make_release(folder, [flash_attn_wheel(made, CELL), stub_wheel(made, "einops", "0.8.2")])
    return folder


@pytest.fixture
def repository(release: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Serve the rows of `release` as ``github:me/wheels``; returns the targets that were opened."""
    opened: list[str] = []

    def open_publisher(text: str, environ: Mapping[str, str]) -> object:
        opened.append(text)
        rows = [
            row.model_copy(update={"url": f"https://host.example/{row.filename}"}) for row in read_manifest(release)
        ]
        return SimpleNamespace(rows=lambda: tuple(rows))

    monkeypatch.setattr("wheelfactory.commands.targets.open_publisher", open_publisher)
    return opened


def test_status_reads_a_repository(cli: Cli, repository: list[str]) -> None:
    shown = cli("status", "github:me/wheels", *MATRIX, "--only", CELL, "--all")
    assert (shown.code, repository) == (DONE, ["github:me/wheels"])
    assert f"{CELL}  published" in shown.out.splitlines()


def test_status_begins_with_a_table_and_its_sum(cli: Cli, release: Path, tmp_path: Path) -> None:
    shown = cli("status", release, *ONLY, "--cache", tmp_path / "empty")
    header, row, total, unknown, published, runner, *_ = shown.out.splitlines()
    assert header.split("  ") == ["ROCm", "torch", "wanted", "published", "build here", "CPU h"]
    assert (row.split(), total.split()) == (["6.1", "2.6.0", "4", "1", "1", "?"], ["all", "4", "1", "1", "?"])
    assert unknown == "?: `wheelfactory plan` estimates the other kernel sets"
    assert published == f"published in {release}: 1 of 4 cells"
    assert runner.startswith("not built here: needs a runner: 3 CK cells; ")
    assert (CELL in shown.out, shown.err) == (False, "list cells and reasons with --all\n")


def test_status_reads_the_directory_wheelhouse_by_default(
    cli: Cli, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(release.parent)
    absent = cli("status", *ONLY)
    assert (absent.code, absent.out) == (BAD_INPUT, "")
    assert absent.err.startswith("error: no such manifest: wheelhouse\nhint: ")
    release.rename("wheelhouse")
    assert "published in wheelhouse: 1 of 4 cells\n" in cli("status", *ONLY).out
    manifest = f"wheelhouse/{MANIFEST_NAME}"
    assert f"published in {manifest}: 1 of 4 cells\n" in cli("status", manifest, *ONLY).out


def test_status_prints_cells_and_reasons_with_all(cli: Cli, release: Path) -> None:
    shown = cli("status", release, *MATRIX, "--only", "fa2.8.3-*", "--all")
    cells = [line for line in shown.out.splitlines() if line.startswith("fa2.8.3-")]
    first, runner, excluded, reason, *_ = shown.out.partition(f"{cells[-1]}\n")[2].splitlines()
    states = Counter(line.partition(" ")[2].strip() for line in cells)
    ck = states.pop("not built here: needs a runner")
    assert states == {"published": 1}
    assert first == f"published in {release}: 1 of {ck + 1} cells"
    assert runner.startswith(f"not built here: needs a runner: {ck} CK cells; set the repository variable ")
    assert excluded.startswith("excluded: ")
    assert reason.split(maxsplit=2)[1] in ("torch", "flash-attn")
    assert shown.code == FAILED


def test_status_prints_json_or_markdown_but_not_both(cli: Cli, release: Path) -> None:
    as_json = cli("status", release, *ONLY, "--json")
    document = json.loads(as_json.out)
    assert (document["published"], document["missing"], document["needs-runner"]) == (1, 0, 3)
    assert (as_json.err, as_json.code) == ("", FAILED)
    markdown = cli("status", release, *ONLY, "--markdown")
    assert markdown.out.startswith("## Coverage\n")
    assert (markdown.err, markdown.code) == ("", FAILED)
    both = cli("status", release, "--json", "--markdown")
    assert (both.code, both.err.startswith("error: bad arguments: ")) == (BAD_INPUT, True)


@pytest.mark.usefixtures("repository")
def test_notes_install_from_a_directory_from_the_pages_of_a_repository_or_from_a_site(cli: Cli, release: Path) -> None:
    shown = cli("notes", release)
    assert (shown.code, shown.err) == (DONE, "")
    assert f"pip install --index-url file://{release}/{INDEX} flash-attn" in shown.out
    assert "gh attestation" not in shown.out
    assert f"--index-url https://me.example/{INDEX}" in cli("notes", release, "--site", "https://me.example").out
    checked = cli("notes", release, "--repository", "me/wheels").out
    assert "gh attestation verify FILE --repo me/wheels" in checked
    shown = cli("notes", "github:me/wheels")
    assert f"--index-url https://me.github.io/wheels/{INDEX}" in shown.out
    assert "gh attestation verify FILE --repo me/wheels" in shown.out


def test_notes_since_a_manifest_list_only_later_wheels(cli: Cli, release: Path, tmp_path: Path) -> None:
    (tmp_path / "before.jsonl").write_bytes((release / MANIFEST_NAME).read_bytes())
    unchanged = cli("notes", release, "--since", "before.jsonl").out
    assert unchanged.startswith("0 new flash-attn wheels; 2 files in all.\n\n399 more CK wheels would work, ")
    assert CELL not in unchanged
    assert cli("notes", release).out.startswith("1 new flash-attn wheel; 2 files in all.\n")


@pytest.mark.parametrize("name", ["me/wheels/more", "me/wheels --help", "https://github.com/me/wheels"])
def test_notes_refuse_a_bad_repository(cli: Cli, release: Path, name: str) -> None:
    shown = cli("notes", release, "--repository", name)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: not a repository: {name}\nhint: write OWNER/REPO")


def test_answer_links_the_search_page_for_the_request(cli: Cli, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, site in (
        (release, f"file://{release}/index.html"),
        ("github:Me/wheels", "https://me.github.io/wheels/"),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BODY.encode())))
        shown = cli("ci", "answer", target)
        assert (shown.code, shown.out, shown.err) == (DONE, f"<{site}?{QUERY}>\n", "")


def test_answer_accepts_long_hostile_bytes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"### torch\n\n\xff\xfe\x00 @admin\n" * 10_000
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
    shown = cli("ci", "answer", "github:me/wheels", "--site", "https://of.mine")
    assert shown.code == DONE
    assert shown.out == "<https://of.mine/?torch=%EF%BF%BD%EF%BF%BD%00%20%40admin>\n"


def test_answer_needs_a_site(cli: Cli, release: Path) -> None:
    manifest = release / MANIFEST_NAME
    shown = cli("ci", "answer", manifest)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert (
        shown.err == f"error: cannot determine the URL of the search page: {manifest}\nhint: pass it with --site URL\n"
    )


def test_reports_change_nothing(cli: Cli, release: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in release.rglob("*")}
    cli("status", release, *ONLY)
    cli("notes", release)
    assert {path: path.stat().st_mtime_ns for path in release.rglob("*")} == before
