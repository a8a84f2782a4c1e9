"""Release notes: new and yanked wheels, how to install and verify them, and only established facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from release_factory import quick_gates
from report_rows import code_lines, einops_row, rows_of, shown, table_rows
from small_matrix import small_matrix
from validations import H200, LATER, amd_validation, nvidia_validation, with_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.markdown import MarkdownSection, fit_sections
from wheelfactory.site.notes import BODY_LIMIT, find_changes, release_notes
from wheelfactory.verify.result import Finding, GateResult

OLD = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
NEW = (
    "fa2.8.3-rocm6.4-torch2.9.1-cp312-ck",
    "fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
    "fa2.6.3-rocm6.4-torch2.9.1-cp39-ck",
    "fa2.8.3-rocm7.14-torch2.10.0-cp310-ck",
)
SITE = "https://wheels.example/root/"
GATES = (
    GateResult.from_findings("identity", [], "name and METADATA agree"),
    GateResult.not_run("gpu", "not asked for"),
)


Rows: TypeAlias = tuple[WheelRow, ...]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("before")
    return (*rows_of(folder, [OLD], gates=GATES), einops_row(folder))


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory, before: Rows) -> Rows:
    return (*before, *rows_of(tmp_path_factory.mktemp("after"), NEW, gates=GATES))


def notes(before: Sequence[WheelRow], after: Sequence[WheelRow], **changes: Any) -> str:
    """The notes for a site without a repository, unless changed."""
    return release_notes(before, after, **{"matrix": small_matrix(), "site": SITE, "repository": None, **changes})


def with_address(row: WheelRow) -> WheelRow:
    return row.model_copy(update={"url": f"https://host.example/{row.filename.replace('+', '%2B')}"})


def section(text: str, name: str) -> str:
    """A section of notes, up to the next."""
    return text.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]


def test_new_wheels_are_listed_from_new_to_old_and_one_that_came_yanked_is_not_new(
    before: Rows, after: Rows, tmp_path: Path
) -> None:
    assert [row.cell for row in find_changes(before, after[::-1]).new] == [NEW[3], NEW[0], NEW[2], NEW[1]]
    assert {row.cell for row in find_changes((), after).new} == {*NEW, OLD, None}
    found = find_changes(before, (*before, *rows_of(tmp_path, [NEW[0]], yanked="broken")))
    assert (found.new, len(found.yanked)) == ((), 1)
    assert notes(after, after) == "0 new flash-attn wheels; 6 files in all.\n", "without changes"


def test_a_yank_is_reported_once(after: Rows) -> None:
    now = (after[0].model_copy(update={"yanked": "wrong <i>numbers</i> for @all"}), *after[1:])
    assert [row.cell for row in find_changes(after, now).yanked] == [OLD]
    assert find_changes(now, now).yanked == ()
    text = notes(after, now)
    assert text.startswith("0 new flash-attn wheels, 1 yanked; 6 files in all.\n")
    assert f"{now[0].filename}: wrong <i>numbers</i> for @all" in shown(section(text, "Yanked"))


def test_what_replaces_what_is_named_with_the_reason(before: Rows) -> None:
    old = before[0].model_copy(update={"yanked": "wrong <i>numbers</i>"})
    new = before[0].model_copy(update={"filename": old.filename.replace("-1-", "-1a-")})
    text = notes([old], [old, new])
    line = f"{new.filename} replaces {old.filename}"
    assert f"{line}: wrong <i>numbers</i>" in shown(section(text, "Replaced"))
    lost = notes(before, [*before, new])
    assert shown(section(lost, "Replaced")).endswith(line)
    assert "## Replaced" not in notes([new], [old, new])


def test_evidence_is_reported_once_and_again_when_newer(after: Rows) -> None:
    other = nvidia_validation(hardware=H200.model_copy(update={"device": "H200 [x](http://d.example) @all"}))
    now = (with_evidence(after[0], amd_validation(), other), *after[1:])
    newer = (with_evidence(after[0], amd_validation(time=LATER), other), *after[1:])
    assert [row.cell for row in find_changes(after, now).validated] == [OLD]
    assert [row.cell for row in find_changes(now, newer).validated] == [OLD]
    assert find_changes(now, now).validated == find_changes(now, after).validated == ()
    text = notes(after, now)
    assert text.startswith("0 new flash-attn wheels, 1 with new evidence; 6 files in all.\n")
    evidence, mode = shown(section(text, "Evidence")), "in the non-AMD GPU test mode"
    assert f"{now[0].filename}: tested on gfx942 (AMD Instinct MI300X), torch 2.9.1+rocm6.4, 2026-11-22" in evidence
    assert f"{now[0].filename}: numbers computed on H200 [x](http://d.example) @all {mode}" in evidence


def test_each_index_has_one_install_line(before: Rows, after: Rows) -> None:
    text = notes(before, after)
    root = "pip install --index-url https://wheels.example/root/simple"
    assert table_rows(section(text, "Install"))[1:] == [
        ["7.14", "2.10", "ck", "2.8.3", "3.10", f"{root}/rocm7.14/torch2.10/ck/ flash-attn"],
        ["6.4", "2.9", "ck", "2.8.3, 2.6.3", "3.9, 3.12", f"{root}/rocm64/torch2.9/ck/ flash-attn"],
        ["6.4", "2.9", "triton", "2.8.3", "any", f"{root}/rocm64/torch2.9/triton/ flash-attn"],
    ]


def test_without_a_site_each_wheel_is_installed_by_its_address_and_digest_or_after_a_download(
    before: Rows, after: Rows
) -> None:
    text = notes(before, [with_address(row) for row in after], site=None)
    lines = [row[-1] for row in table_rows(section(text, "Install"))[1:]]
    assert len(lines) == len(NEW)
    (triton,) = (row for row in after if row.cell == NEW[1])
    wheel = f"https://host.example/flash_attn-2.8.3%2Brocm64torch2.9triton-1-py3-none-any.whl#sha256={triton.sha256}"
    assert f"pip install --no-deps einops '{wheel}'" in lines
    assert "Download the wheel" not in text
    text = notes((), after, site=None)
    assert "Download the wheel, then install it from its folder." in text
    assert f"pip install --no-deps einops ./{after[0].filename}" in shown(text)


def test_archs_are_named_by_the_gpus_that_people_know(after: Rows) -> None:
    rows = (*after, after[0].model_copy(update={"filename": after[0].filename.replace("cp311", "cp310")}))
    rows = (*rows[:-1], rows[-1].model_copy(update={"offload_archs": ("gfx942", "gfx9999")}))
    text = notes((), rows)
    assert table_rows(section(text, "GPUs"))[1:] == [
        ["gfx942", "Instinct MI300A, MI300X, MI308X, MI325X", "6 of 6"],
        ["gfx9999", "no product names known", "1 of 6"],
    ]


def test_gates_that_did_not_run_are_counted_apart_with_each_reason_once_and_three_at_most(after: Rows) -> None:
    text = section(notes((), after), "Gates")
    assert table_rows(text)[1:] == [["identity", "5", "0", "0"], ["gpu", "0", "0", "5 (not asked for)"]]
    assert "without any recorded gate" not in text
    gates = tuple(GateResult.not_run("gpu", why) for why in ("a", "b", "a", "", "c", "d|d", "e"))
    text = notes((), [after[0].model_copy(update={"gates": gates})])
    assert table_rows(section(text, "Gates"))[1:] == [["gpu", "0", "0", "7 (a; b; c; and 2 more reasons)"]]


def test_failed_gates_and_unverified_wheels_are_counted(after: Rows, tmp_path: Path) -> None:
    figures = {"gfx942 executed": 412, "gfx942 kernels": 2887}
    finding = Finding(file="a", expected="b", found="c", remedy="d")
    failed = GateResult.from_findings("code-objects", [finding], figures=figures)
    rows = (after[0].model_copy(update={"gates": (failed,)}), after[2].model_copy(update={"gates": ()}))
    text = section(notes((), rows), "Gates")
    assert table_rows(text)[1:] == [["code-objects", "0", "1", "0"]]
    assert "1 wheel without any recorded gate." in text
    assert "- 412 of 2887 kernels executed by an emulator, for gfx942: 1 wheel" in text
    made = (*rows_of(tmp_path, [NEW[0]]), *rows_of(tmp_path, [NEW[1]], gates=quick_gates(NEW[1])))
    text = section(notes((), made), "Gates")
    assert "1 wheel not checked: numbers." in text
    assert "verified" not in text


def test_files_have_size_glibc_the_whole_digest_and_the_lines_that_check_them(after: Rows) -> None:
    text = notes((), after, repository="me/wheels")
    (ck,) = (row for row in after if row.cell == OLD)
    assert [ck.filename, "1.2 MB", "2.28", ck.sha256] in table_rows(text)
    assert [row[2] for row in table_rows(text) if row[0].startswith("einops")] == ["any"]
    assert code_lines(text) == [
        "wheelfactory verify --from github:me/wheels FILE",
        "gh attestation verify FILE --repo me/wheels",
        "gh release verify-asset TAG FILE --repo me/wheels",
    ]
    assert "gh " not in notes((), after), "without a repository"


def test_without_any_ck_wheel_one_line_says_how_many_are_not_built(after: Rows) -> None:
    triton = [row for row in after if not str(row.cell).endswith("-ck")]
    headline, _, note, *_ = notes((), triton).splitlines()
    assert headline == "1 new flash-attn wheel; 2 files in all."
    assert shown(note) == "4 more CK wheels would work, but this site does not build them."
    assert "-ck" not in note, "the cells are counted, not listed"


@pytest.mark.parametrize("limit", [2_000, 10_000, BODY_LIMIT])
def test_notes_fit_the_limit_and_say_how_much_was_cut(after: Rows, limit: int) -> None:
    many = [
        with_address(row.model_copy(update={"filename": row.filename.replace("torch2", f"torch{number}")}))
        for number in range(200)
        for row in after
        if row.label
    ]
    text = notes((), many, site=None, repository="me/wheels", limit=limit)
    cut = sum(map(int, re.findall(r"^(\d+) more are not shown; see `manifest.jsonl`\.$", text, re.M)))
    listed = [row for row in table_rows(text) if len(row) in (4, 6) and (".whl" in row[0] or ".whl" in row[-1])]
    assert limit - 500 < len(text.encode()) <= limit
    assert cut > 0
    assert len(listed) + cut == 2 * len(many)
    assert "gh attestation verify" in text


def test_later_sections_are_cut_first() -> None:
    sections = [
        MarkdownSection(("a",), ("x" * 50,) * 4),
        MarkdownSection(("b",)),
        MarkdownSection(("c",), ("y" * 50,) * 4, ("end",)),
    ]
    whole = fit_sections(sections, 10_000)
    shorter = fit_sections(sections, len(whole) - 1)
    assert (shorter.count("x"), whole.count("y")) == (200, 200)
    assert shorter.count("y") < 200
    assert "end" in shorter
    assert fit_sections(sections, len(whole)) == whole
    text = fit_sections([MarkdownSection(("a",), ("\N{SNOWMAN}" * 100,) * 10)], 1_000)
    assert 600 < len(text.encode()) <= 1_000, "letters beyond ASCII count as their bytes"
