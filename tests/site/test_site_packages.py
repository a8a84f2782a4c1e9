"""The packages page: every published wheel, found by ROCm, torch and backend, linked with its digest."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from report_rows import BLANK, code_lines, einops_row, rows_of, shown, table_rows, tokens
from small_matrix import small_matrix
from validations import H200, amd_validation, nvidia_validation, with_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.packages import GENERATED, packages_html, packages_page

CELLS = (
    "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
    "fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
    "fa2.8.3-rocm7.14-torch2.14.1-cp312-ck",
)
MATRIX = small_matrix()
SITE = "https://wheels.example/root"


@pytest.fixture
def rows(tmp_path: Path) -> tuple[WheelRow, ...]:
    return (*rows_of(tmp_path, CELLS), einops_row(tmp_path))


def links(page: str) -> list[str]:
    return [str(token.attrs["href"]) for token in tokens(page) if token.type == "link_open"]


def headings(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("## ")]


def test_wheels_stand_under_their_rocm_torch_and_backend_the_newest_first(rows: tuple[WheelRow, ...]) -> None:
    assert headings(packages_page(MATRIX, rows)) == [
        "## ROCm 7.14, torch 2.14, ck",
        "## ROCm 6.4, torch 2.9, ck",
        "## ROCm 6.4, torch 2.9, triton",
        "## Dependencies",
        "## GPUs",
    ]


def test_a_preview_stands_apart_with_its_commit(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, [CELLS[0], CELLS[0].replace("2.8.3", "2.8.4+git4a948e9")])
    page = packages_page(MATRIX, rows)
    assert headings(page)[:2] == ["## ROCm 6.4, torch 2.9, ck", "## ROCm 6.4, torch 2.9, ck-preview"]
    assert "2.8.4 preview (commit 4a948e9)" in [cells[0] for cells in table_rows(page)]
    assert b"ROCm 6.4, torch 2.9, ck-preview" in packages_html(MATRIX, rows)


def test_a_row_has_the_facts_for_choosing_a_wheel(rows: tuple[WheelRow, ...]) -> None:
    (ck,) = (row for row in rows if row.cell == CELLS[0])
    expected = ["2.8.3", "3.11", "gfx942", "1.2 MB", "2.28", "2026-01-01", ck.sha256[:12], "wheel"]
    assert expected in table_rows(packages_page(MATRIX, rows))
    assert ["gfx942", "Instinct MI300A, MI300X, MI308X, MI325X"] in table_rows(packages_page(MATRIX, rows))


def test_every_file_is_linked_with_its_whole_digest(rows: tuple[WheelRow, ...]) -> None:
    local = {f"wheels/{row.filename.replace('+', '%2B')}#sha256={row.sha256}" for row in rows}
    assert set(links(packages_page(MATRIX, rows))) == local
    for site in (SITE, f"{SITE}/"):
        assert set(links(packages_page(MATRIX, rows, site))) == {f"{SITE}/{name}" for name in local}
    elsewhere = rows[0].model_copy(update={"url": "https://host.example/a%2Bb.whl"})
    (found,) = links(packages_page(MATRIX, [elsewhere], SITE))
    assert found == f"https://host.example/a%2Bb.whl#sha256={elsewhere.sha256}", "it has an address of its own"


def test_each_group_has_its_install_line_if_the_site_is_known(rows: tuple[WheelRow, ...]) -> None:
    assert code_lines(packages_page(MATRIX, rows, SITE)) == [
        f"pip install --index-url {SITE}/simple/{index}/ flash-attn"
        for index in ("rocm7.14/torch2.14/ck", "rocm64/torch2.9/ck", "rocm64/torch2.9/triton")
    ]
    assert code_lines(packages_page(MATRIX, rows)) == []


def test_a_yanked_wheel_and_one_that_ran_on_a_gpu_are_marked(rows: tuple[WheelRow, ...]) -> None:
    hostile = H200.model_copy(update={"device": "H200|[x](http://d.example) @all"})
    ran, computed, *others = rows
    yanked = others[0].model_copy(update={"yanked": "a|b [c](http://d.example) @all"})
    computed = with_evidence(computed, nvidia_validation(hardware=hostile))
    page = packages_page(MATRIX, [with_evidence(ran, amd_validation()), computed, yanked, *others[1:]])
    gates = [cells[-1] for cells in table_rows(page)]
    assert gates.count("wheel, verified on gfx942") == 1
    mode = "in the non-AMD GPU test mode"
    (marked,) = (text.replace(BLANK, "") for text in gates if mode in text)
    assert marked == f"wheel, numbers computed on H200|[x](http://d.example) @all {mode}"
    assert "wheel yanked: a|b [c](http://d.example) @all" in shown(page)
    assert "3 flash-attn wheels, 1 of them yanked." in page
    assert len(links(page)) == len(rows)


def test_the_same_rows_give_the_same_page_whatever_their_order(rows: tuple[WheelRow, ...]) -> None:
    (page,) = {packages_page(MATRIX, order, SITE) for order in permutations(rows)}
    assert page.startswith(f"{GENERATED}\n")
    assert "0 flash-attn wheels." in packages_page(MATRIX, [])


def test_without_any_ck_wheel_visitors_are_told_and_the_owner_learns_what_to_set(rows: tuple[WheelRow, ...]) -> None:
    ck, triton, *_ = rows
    assert "does not build" not in packages_page(MATRIX, [ck])
    for page in (shown(packages_page(MATRIX, [triton])), packages_html(MATRIX, [triton]).decode()):
        visitors, owner = page.split("For the owner of this site")
        assert "4 more CK wheels would work, but this site does not build them." in visitors
        assert "set the repository variable WHEELFACTORY_RUNNER to its label" in owner
        assert not any(word in visitors for word in ("variable", "runner", "cell"))
        assert "docs/how-to/self-hosted-runners.md" in owner


def test_dependencies_that_only_some_indexes_have_are_named(rows: tuple[WheelRow, ...], tmp_path: Path) -> None:
    kernels = einops_row(tmp_path).model_copy(
        update={"project": "amd-aiter", "filename": "amd_aiter-0.0.20260602-py3-none-any.whl"}
    )
    assert "Every index has these too." in packages_page(MATRIX, rows)
    for page in (packages_page(MATRIX, [*rows, kernels]), packages_html(MATRIX, [*rows, kernels]).decode()):
        assert "Every index has these too; amd-aiter only those of Triton previews." in page
