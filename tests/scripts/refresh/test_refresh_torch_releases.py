"""The torch chore: it adds new releases from indexes on loopback to the matrix, and changes no other character."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from refresh.torch_index import TorchIndex
from refresh.torch_releases import TorchChanges, edit_torch, merge_versions, refresh_torch
from scripts.refresh.torch_pages import TorchPages, known
from small_matrix import edited
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """A small matrix that describes torch 2.10.0 but lists it for no ROCm."""
    path = tmp_path / "matrix.yaml"
    path.write_text(edited(known("2.10.0")))
    return path


@pytest.fixture
def full(pages: TorchPages) -> TorchPages:
    """Indexes that have exactly what the small matrix lists."""
    pages.have("6.4", "2.9.1", "3.12", "3.11")
    pages.have("6.2", "2.5.1", "3.11", platform="linux_x86_64")
    return pages


def run_on(path: Path, pages: TorchPages) -> TorchChanges:
    return refresh_torch(path, TorchIndex(pages.url, {}))


def suggested(findings: TorchChanges) -> list[str]:
    return [line for line in findings.lines if line.startswith("suggested")]


def test_a_release_that_the_matrix_knows_is_added_where_the_index_has_it_once(matrix: Path, full: TorchPages) -> None:
    before = matrix.read_text()
    full.have("6.4", "2.10.0", "3.12", "3.11")
    findings = run_on(matrix, full)
    assert (findings.additions, suggested(findings)) == ((("6.4", "2.10.0"),), [])
    assert matrix.read_text() == before.replace("torch: ['2.9.1']", "torch: ['2.10.0', '2.9.1']")
    cells = len(expand(load_matrix(matrix)).cells)
    assert findings.new_cells == cells - findings.cells > 0
    assert findings.summary.endswith(f"{findings.new_cells} new cells besides {findings.cells}")
    os.utime(matrix, (1, 1))
    findings = run_on(matrix, full)
    assert (findings.additions, findings.new_cells, suggested(findings)) == ((), 0, [])
    assert matrix.stat().st_mtime == 1


def test_several_releases_and_entries_are_edited_at_once(matrix: Path, full: TorchPages) -> None:
    matrix.write_text(edited(known("2.13.0", "2.10.0")))
    for entry in ("6.4", "6.2"):
        full.have(entry, "2.10.0", "3.12", "3.11")
        full.have(entry, "2.13.0", "3.12", "3.11")
    assert len(run_on(matrix, full).additions) == 4
    written = load_matrix(matrix).rocm
    assert [written[entry].torch for entry in ("6.4", "6.2")] == [
        ("2.13.0", "2.10.0", "2.9.1"),
        ("2.13.0", "2.10.0", "2.5.1"),
    ]


BOTH = "3.12 3.11"


@pytest.mark.parametrize(
    ("facts", "index", "added", "suggestions"),
    [
        pytest.param(["2.10.0"], {"2.1.0": BOTH, "2.91": "3.12"}, [], ["2.91", "2.1.0"], id="no-numbers"),
        pytest.param(["2.10"], {"2.10.0": BOTH}, ["2.10"], [], id="longer-on-the-index"),
        pytest.param([], dict.fromkeys(("2.15.0", "2.15.1", "2.9.0"), "3.12"), [], ["2.15.1"], id="the-last-patch"),
        pytest.param([], dict.fromkeys(("2.17.0rc1", "2.17.0.dev20261101"), "3.12"), [], [], id="no-prerelease"),
        pytest.param(
            *(["2.10.1", "2.10.0", "2.9.2"], dict.fromkeys(("2.9.2", "2.10.1", "2.10.0"), BOTH)),
            *(["2.10.1"], ["2.10.0", "2.9.2"]),
            id="a-refused-one-blocks-no-other",
        ),
    ],
)
def test_what_is_added_and_what_is_only_suggested(
    matrix: Path, full: TorchPages, facts: list[str], index: dict[str, str], added: list[str], suggestions: list[str]
) -> None:
    matrix.write_text(edited(known(*facts)))
    for torch, pythons in index.items():
        full.have("6.4", torch, *pythons.split())
    findings = run_on(matrix, full)
    assert findings.additions == tuple(("6.4", torch) for torch in added)
    assert [suggestion.torch for suggestion in findings.suggestions] == suggestions


@pytest.mark.parametrize(
    ("torch", "pythons", "what"),
    [
        ("2.15.0", "3.14 3.9", "no entry under torch: (the index has Python 3.14, 3.9)"),
        # its facts would make cells of it; while a release is being uploaded that is so for all
        ("2.10.0", "3.12", "the index lacks Python 3.11, which its entry under torch: has"),
        ("2.9.1", "3.14 3.13 3.10", "the index has Python 3.14, 3.13, which its entry under torch: lacks"),
    ],
)
def test_a_release_whose_facts_lack_something_is_only_suggested(
    matrix: Path, full: TorchPages, torch: str, pythons: str, what: str
) -> None:
    before = matrix.read_bytes()
    full.have("6.4", torch, *pythons.split())
    assert suggested(run_on(matrix, full)) == [f"suggested  for ROCm 6.4: torch {torch}: {what}"]
    assert matrix.read_bytes() == before


def test_a_python_outside_the_matrix_can_be_missing(matrix: Path, full: TorchPages) -> None:
    matrix.write_text(
        edited(
            known("2.10.0"),
            ("python: ['3.12', '3.11']\n    triton: '3.6.0'", "python: ['3.12', '3.10']\n    triton: '3.6.0'"),
        )
    )
    full.have("6.4", "2.10.0", "3.12")
    assert run_on(matrix, full).additions == (("6.4", "2.10.0"),)


def test_a_listed_release_missing_on_the_index_is_reported_and_stays(matrix: Path, full: TorchPages) -> None:
    before = matrix.read_bytes()
    full.files["6.4"] = []
    full.have("6.4", "2.10.0", "3.12", "3.11")
    full.files["6.2"] = []
    full.have("6.2", "2.5.1", "3.10", platform="linux_x86_64")
    findings = run_on(matrix, full)
    assert suggested(findings) == [
        "suggested  for ROCm 6.4: torch 2.9.1: listed, but not on the index",
        "suggested  for ROCm 6.2: torch 2.5.1: listed, but the index lacks Python 3.11",
    ]
    assert matrix.read_bytes() == before.replace(b"torch: ['2.9.1']", b"torch: ['2.10.0', '2.9.1']")


def test_a_release_refused_by_the_matrix_is_suggested_with_the_reason(matrix: Path, full: TorchPages) -> None:
    """Two patch releases would make wheels of the same name."""
    matrix.write_text(edited(known("2.9.2")))
    before = matrix.read_bytes()
    full.have("6.4", "2.9.2", "3.12", "3.11")
    (line,) = suggested(run_on(matrix, full))
    assert line.startswith("suggested  for ROCm 6.4: torch 2.9.2: two cells would make the same wheel: ")
    assert matrix.read_bytes() == before


def test_an_index_that_fails_is_named_and_the_others_count(matrix: Path, full: TorchPages) -> None:
    full.have("6.4", "2.10.0", "3.12", "3.11")
    full.status["6.2"] = 404
    found = run_on(matrix, full)
    assert found.additions == (("6.4", "2.10.0"),)
    (failed,) = (line for line in found.lines if line.startswith("failed"))
    assert failed.startswith(f"failed     cannot read an index: ROCm 6.2, {full.url}/rocm6.2: ")


def test_a_list_that_two_entries_share_is_edited_once(matrix: Path, full: TorchPages) -> None:
    shared = ("torch: ['2.9.1']", "torch: &both ['2.9.1']"), ("torch: ['2.5.1']", "torch: *both")
    matrix.write_text(edited(known("2.10.0"), *shared))
    before = matrix.read_text()
    full.files["6.2"] = []
    full.have("6.2", "2.9.1", "3.12", "3.11")
    for entry in ("6.4", "6.2"):
        full.have(entry, "2.10.0", "3.12", "3.11")
    assert len(run_on(matrix, full).additions) == 2
    assert matrix.read_text() == before.replace("&both ['2.9.1']", "&both ['2.10.0', '2.9.1']")


def test_the_matrix_of_this_project_can_be_edited(tmp_path: Path, pages: TorchPages) -> None:
    """If the newest torch is removed from all lists, the chore restores it in each and changes nothing else."""
    matrix = load_matrix(MATRIX)
    newest, second = list(matrix.torch)[:2]
    path = tmp_path / "matrix.yaml"
    without = re.sub(rf"(\n    torch: \[)'{newest}'(, )?", r"\1", MATRIX.read_text())
    path.write_text(without.replace("torch: []", f"torch: ['{second}']"))
    before = path.read_text()
    for entry, rocm in load_matrix(path).rocm.items():
        for torch in {*rocm.torch, newest}:
            pages.have(entry, torch, *matrix.torch[torch].python)
    findings = run_on(path, pages)
    added = [entry for entry, _ in findings.additions]
    refused = [suggestion.rocm for suggestion in findings.suggestions]
    assert sorted(added + refused) == sorted(matrix.rocm)
    assert len(added) > 1
    after = path.read_text()
    assert after.count(f"torch: ['{newest}', ") == len(added)
    assert after.replace(f"torch: ['{newest}', ", "torch: [") == before


TEXT = """\
# torch: ['2.9.1'] in a remark
rocm:
  '7.2':
    torch: ['2.13.0', '2.9.1']   # as of May
    index: here
  '7.1':
    torch:
      # the older ones

      - '2.10.0'   # measured
      - '2.9.1'
    index: there
  '7.0': {torch: ["2.9.1"], index: nowhere}
"""


def test_new_releases_stand_before_the_first_older_one() -> None:
    for listed, new, order in (
        (["2.9.1"], ["2.10.0"], ("2.10.0", "2.9.1")),
        (["2.10.0"], ["2.9.1"], ("2.10.0", "2.9.1")),
        (
            ["2.13.0", "2.9.1"],
            ["2.8.0", "2.14.1", "2.10.0", "2.11.0"],
            ["2.14.1", "2.13.0", "2.11.0", "2.10.0", "2.9.1", "2.8.0"],
        ),
        (["2.9.1", "2.13.0"], ["2.10.0"], ("2.10.0", "2.9.1", "2.13.0")),
        (["2.1"], ["2.10"], ("2.10", "2.1")),
    ):
        assert merge_versions(listed, new) == tuple(order)


def test_a_list_in_brackets_takes_a_release_at_either_end_and_between() -> None:
    edited = edit_torch(TEXT, {"7.2": ["2.8.0", "2.14.1", "2.11.0", "2.10.0"]})
    before, after = "['2.13.0', '2.9.1']   # as", "['2.14.1', '2.13.0', '2.11.0', '2.10.0', '2.9.1', '2.8.0']   # as"
    assert edited == TEXT.replace(before, after)


def test_a_list_of_dashes_takes_lines_of_the_same_indentation() -> None:
    edited = edit_torch(TEXT, {"7.1": ["2.11.0", "2.12.1", "2.9.2", "2.8.0", "2.7.1"]})
    assert edited == TEXT.replace(
        "      - '2.10.0'   # measured\n      - '2.9.1'\n",
        "      - '2.12.1'\n      - '2.11.0'\n      - '2.10.0'   # measured\n"
        "      - '2.9.2'\n      - '2.9.1'\n      - '2.8.0'\n      - '2.7.1'\n",
    )


def test_several_lists_are_edited_at_once() -> None:
    edited = edit_torch(TEXT, {"7.2": ["2.14.1"], "7.0": ["2.10.0"]})
    assert edited == edit_torch(edit_torch(TEXT, {"7.2": ["2.14.1"]}), {"7.0": ["2.10.0"]})
    assert """{torch: ['2.10.0', "2.9.1"],""" in edited


def test_line_ends_marks_and_letters_of_any_kind_stay() -> None:
    for old, new in (("\n", "\r\n"), ("# torch", "\ufeff# torch"), ("remark", "r\u00e9mark \U0001f600")):
        additions = {"7.2": ["2.14.1"], "7.1": ["2.11.0", "2.8.0"]}
        assert edit_torch(TEXT.replace(old, new), additions) == edit_torch(TEXT, additions).replace(old, new)


def test_a_last_line_without_an_end_gets_one() -> None:
    text = "rocm:\n  a:\n    torch:\n      - '2.9.1'"
    assert edit_torch(text, {"a": ["2.8.0", "2.7.1"]}) == f"{text}\n      - '2.8.0'\n      - '2.7.1'"
