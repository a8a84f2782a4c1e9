"""The commands that report what is published: status, notes and answer, on directories, manifests and repositories."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import Cli
from release_factory import flash_attn_wheel, make_release, stand_in_wheel
from wheelfactory.core.checkout import ROOT
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED
from wheelfactory.release.manifest import MANIFEST_NAME, read_manifest

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
    make_release(folder, [flash_attn_wheel(made, CELL), stand_in_wheel(made, "einops", "0.8.2")])
    return folder


@pytest.fixture
def repository(release: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """``github:me/wheels`` with the rows of `release`; gives what was asked for."""
    asked: list[str] = []

    def publisher_of(text: str, environ: Mapping[str, str]) -> object:
        asked.append(text)
        rows = [
            row.model_copy(update={"url": f"https://host.example/{row.filename}"}) for row in read_manifest(release)
        ]
        return SimpleNamespace(rows=lambda: tuple(rows))

    monkeypatch.setattr("wheelfactory.commands.targets.publisher_of", publisher_of)
    return asked


def test_status_reads_a_manifest_file_too(cli: Cli, release: Path) -> None:
    of_folder, of_file = cli("status", release, *ONLY), cli("status", release / MANIFEST_NAME, *ONLY)
    assert of_file.out == of_folder.out
    assert of_file.err == of_folder.err.replace(str(release), str(release / MANIFEST_NAME))


def test_status_reads_a_repository(cli: Cli, repository: list[str]) -> None:
    shown = cli("status", "github:me/wheels", *MATRIX, "--only", CELL)
    assert (shown.code, shown.out, repository) == (DONE, f"{CELL}  published\n", ["github:me/wheels"])


def test_status_tells_the_sums_and_the_reasons_beside_the_cells(cli: Cli, release: Path) -> None:
    shown = cli("status", release, *MATRIX, "--only", "fa2.8.3-*")
    first, excluded, reason, *_ = shown.err.splitlines()
    cells = len(shown.out.splitlines())
    assert first == f"1 of {cells} cells are published in {release}, {cells - 1} are missing"
    assert excluded.startswith("excluded: ")
    assert reason.split(maxsplit=2)[1] in ("torch", "flash-attn")
    assert shown.code == FAILED


def test_status_as_json_is_one_object(cli: Cli, release: Path) -> None:
    shown = cli("status", release, *ONLY, "--json")
    told = json.loads(shown.out)
    assert (told["published"], told["missing"], shown.err, shown.code) == (1, 3, "", FAILED)


def test_status_as_markdown_is_a_page(cli: Cli, release: Path) -> None:
    shown = cli("status", release, *ONLY, "--markdown")
    assert shown.out.startswith("## Coverage\n")
    assert (shown.err, shown.code) == ("", FAILED)


def test_status_takes_one_form_at_a_time(cli: Cli, release: Path) -> None:
    shown = cli("status", release, "--json", "--markdown")
    assert shown.code == BAD_INPUT
    assert shown.err.startswith("error: bad arguments: ")


def test_notes_of_a_directory_install_from_its_own_indexes(cli: Cli, release: Path) -> None:
    shown = cli("notes", release)
    assert (shown.code, shown.err) == (DONE, "")
    assert f"pip install --index-url file://{release}/{INDEX} flash-attn" in shown.out
    assert "gh attestation" not in shown.out
    served = cli("notes", release, "--site", "https://me.example").out
    assert f"pip install --index-url https://me.example/{INDEX} flash-attn" in served


def test_notes_of_a_repository_install_from_its_pages_or_from_a_site_that_is_named(
    cli: Cli, repository: list[str]
) -> None:
    assert f"--index-url https://me.github.io/wheels/{INDEX}" in cli("notes", "github:me/wheels").out
    assert f"--index-url https://of.mine/{INDEX}" in cli("notes", "github:me/wheels", "--site", "https://of.mine/").out


def test_notes_since_a_manifest_tell_only_what_came_after(cli: Cli, release: Path, tmp_path: Path) -> None:
    (tmp_path / "before.jsonl").write_bytes((release / MANIFEST_NAME).read_bytes())
    assert cli("notes", release, "--since", "before.jsonl").out == "0 new flash-attn wheels; 2 files in all.\n"
    assert cli("notes", release).out.startswith("1 new flash-attn wheel; 2 files in all.\n")


def test_notes_name_the_repository_to_check_with(cli: Cli, release: Path, repository: list[str]) -> None:
    assert "gh attestation verify FILE --repo me/wheels" in cli("notes", "github:me/wheels").out
    assert "gh attestation verify FILE --repo me/wheels" in cli("notes", release, "--repository", "me/wheels").out


@pytest.mark.parametrize("name", ["wheels", "me/wheels/more", "me/wheels --help", "https://github.com/me/wheels"])
def test_notes_refuse_what_is_no_repository(cli: Cli, release: Path, name: str) -> None:
    shown = cli("notes", release, "--repository", name)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: not a repository: {name}\nhint: write OWNER/REPO")


def test_answer_is_the_search_page_of_the_target_with_the_fields_of_a_file(
    cli: Cli, release: Path, tmp_path: Path
) -> None:
    (tmp_path / "body.md").write_text(BODY)
    shown = cli("ci", "answer", release, "--body", "body.md")
    assert (shown.code, shown.err) == (DONE, "")
    assert shown.out == f"<file://{release}/index.html?{QUERY}>\n"


@pytest.mark.parametrize("arguments", [(), ("--body", "-")], ids=["default", "dash"])
def test_answer_reads_the_body_from_stdin(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BODY.encode())))
    shown = cli("ci", "answer", "github:Me/wheels", *arguments)
    assert shown.out == f"<https://me.github.io/wheels/?{QUERY}>\n"


@pytest.mark.parametrize("name", ["body.md", "-"])
def test_answer_stands_bytes_that_are_no_text(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    body = b"### torch\n\n\xff\xfe\x00 @admin\n" * 10_000
    (tmp_path / "body.md").write_bytes(body)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
    shown = cli("ci", "answer", "github:me/wheels", "--site", "https://of.mine", "--body", name)
    assert shown.code == DONE
    assert shown.out == "<https://of.mine/?torch=%EF%BF%BD%EF%BF%BD%00%20%40admin>\n"


def test_answer_without_a_known_site_says_how_to_name_it(cli: Cli, release: Path) -> None:
    manifest = release / MANIFEST_NAME
    shown = cli("ci", "answer", manifest, "--body", manifest)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err == f"error: unknown address of the search page: {manifest}\nhint: name it with --site URL\n"


def test_answer_without_a_body_is_refused(cli: Cli, release: Path) -> None:
    shown = cli("ci", "answer", release, "--body", "absent.md")
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith("error: cannot read: absent.md (No such file or directory)\n")


def test_commands_that_report_change_nothing(cli: Cli, release: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in release.rglob("*")}
    cli("status", release, *ONLY)
    cli("notes", release)
    assert {path: path.stat().st_mtime_ns for path in release.rglob("*")} == before
