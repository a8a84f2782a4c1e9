"""`wheelfactory status`, `notes` and `ci answer` on directories, manifests and GitHub repositories."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from command_line import Cli
from release_factory import flash_attn_wheel, make_release, stub_wheel
from report_rows import tokens
from wheelfactory.commands.ci.answer import FIELDS, read_request, search_link
from wheelfactory.core.cell import Backend
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


def test_status_reads_a_repository_and_changes_nothing(cli: Cli, release: Path, repository: list[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in release.rglob("*")}
    shown = cli("status", "github:me/wheels", *MATRIX, "--only", CELL, "--all")
    assert (shown.code, repository) == (DONE, ["github:me/wheels"])
    assert f"{CELL}  published" in shown.out.splitlines()
    cli("status", release, *ONLY)
    cli("notes", release)
    assert {path: path.stat().st_mtime_ns for path in release.rglob("*")} == before


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
    for wheel in Path("wheelhouse/wheels").glob("flash_attn-*.whl"):
        wheel.unlink()
    assert "published in wheelhouse: 0 of 4 cells, 1 yanked\n" in cli("status", *ONLY).out, "run builds a replacement"


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


@pytest.mark.parametrize(
    ("target", "options", "body", "link"),
    [
        ("release", (), BODY.encode(), f"file://{{}}/index.html?{QUERY}"),
        ("github:Me/wheels", (), BODY.encode(), f"https://me.github.io/wheels/?{QUERY}"),
        (
            "github:me/wheels",
            ("--site", "https://of.mine"),
            b"### torch\n\n\xff\xfe\x00 @admin\n" * 10_000,
            "https://of.mine/?torch=%EF%BF%BD%EF%BF%BD%00%20%40admin",
        ),
    ],
    ids=["directory", "repository", "long hostile bytes"],
)
def test_answer_links_the_search_page_for_the_request(
    *, cli: Cli, release: Path, monkeypatch: pytest.MonkeyPatch, target: str, options: Any, body: bytes, link: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
    shown = cli("ci", "answer", target, *options)
    assert shown == (DONE, f"<{link.format(release)}>\n", "")


def test_answer_needs_a_site(cli: Cli, release: Path) -> None:
    manifest = release / MANIFEST_NAME
    shown = cli("ci", "answer", manifest)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert (
        shown.err == f"error: cannot determine the URL of the search page: {manifest}\nhint: pass it with --site URL\n"
    )


SITE = "https://wheels.example/rocm"
FORM = Path(ROOT, ".github/ISSUE_TEMPLATE/wheel-request.yml")

REQUEST = """\
### torch

2.9.1+rocm6.4

### ROCm

_No response_

### Python

3.12

### GPU

MI300X

### flash-attn

_No response_

### Backend

None
"""


def test_each_field_that_was_filled_in_is_read_and_other_text_is_ignored() -> None:
    cases: list[tuple[str, dict[str, str]]] = [
        (REQUEST, {"torch": "2.9.1+rocm6.4", "python": "3.12", "gpu": "MI300X"}),
        ("", {}),  # empty
        ("please build a wheel", {}),  # free text
        ("### Operating system\n\nLinux\n", {}),  # other field
        ("### torch\n\n### Python\n\n3.12", {"python": "3.12"}),  # no value
        ("### torch\n\n2.9.1\n\n### torch\n\n2.8.0", {"torch": "2.9.1"}),  # twice
        ("### torch\r\n\r\n2.9.1\r\nand more\r\n", {"torch": "2.9.1"}),  # two lines, with a browser's ends
        ("#### torch\n\n2.9.1", {}),  # other level
        ("### Backend\n\neither", {}),  # any backend
        ("### torch\n\n" + "9" * 10**7, {"torch": "9" * 200}),  # huge
        ("\n" * 10**6 + "### torch\n\n2.9.1", {}),
    ]
    for body, fields in cases:
        assert read_request(body) == fields


def test_the_answer_is_the_search_page_with_the_fields_as_its_query() -> None:
    assert search_link(SITE, REQUEST) == f"<{SITE}/?torch=2.9.1%2Brocm6.4&python=3.12&gpu=MI300X>"
    assert search_link(f"{SITE}/", "") == f"<{SITE}/>"
    # a file, because a browser would list the folder
    of_this_machine = search_link("file:///wheelhouse", "### GPU\n\nRX 7900 XTX")
    assert of_this_machine == "<file:///wheelhouse/index.html?gpu=RX%207900%20XTX>"


HOSTILE = (
    "2.9.1> @admin #1 [a](http://evil.example) <script>x</script>``` ![i](http://evil.example/i) | `> &gpu=x \ud800"
)


def test_whatever_a_field_holds_is_one_value_of_one_link() -> None:
    kinds = ["paragraph_open", "inline", "link_open", "text", "link_close", "paragraph_close"]
    for field in FIELDS:
        link = search_link(SITE, f"### {field}\n\n{HOSTILE}")
        assert (link[0], link[-1]) == ("<", ">")
        assert parse_qs(urlsplit(link[1:-1]).query) == {field: [HOSTILE.replace("\ud800", "?")]}
        assert [token.type for token in tokens(link)] == kinds


def test_the_form_asks_for_exactly_the_fields_that_are_read_and_only_torch_must_be_filled_in() -> None:
    form = yaml.safe_load(FORM.read_text())
    assert sorted(item["id"] for item in form["body"]) == sorted(FIELDS)
    assert [item["attributes"]["label"].lower() for item in form["body"]] == [item["id"] for item in form["body"]]
    assert form["labels"] == ["wheel-request"]
    required = [item["id"] for item in form["body"] if item.get("validations", {}).get("required")]
    assert required == ["torch"]
    choices = {item["id"]: item["attributes"]["options"] for item in form["body"] if item["type"] == "dropdown"}
    assert choices == {"backend": ["either", *map(str, Backend)]}, "no version, which would go out of date"
