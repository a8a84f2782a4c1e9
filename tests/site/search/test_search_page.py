"""The search page in a real Chromium: choices, results, and the explanation of an empty result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from release_factory import quick_gates
from search_page import Visit, choose, count, serving, standing, unfold, write_page
from search_rows import example_rows, row_of
from validations import H200, amd_validation, nvidia_validation, with_evidence
from wheelfactory.commands.ci.answer import search_link
from wheelfactory.core.cell import Backend, Cell, preview_commit
from wheelfactory.matrix.expand import expand as expand_matrix
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow, verified_archs
from wheelfactory.site.coverage import compute_coverage

pytestmark = pytest.mark.slow

CK = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-cp311-ck")
DROP = "\N{MULTIPLICATION SIGN}"
HOSTILE = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture
def page(visit: Visit, site: str) -> Page:
    """The page of `example_rows` after loading."""
    return visit(site).open()


@pytest.fixture(scope="module")
def wheels(matrix: Matrix) -> list[WheelRow]:
    """The rows of the site that are not yanked."""
    return [row for row in example_rows(matrix) if row.yanked is None]


def cell_of(row: WheelRow) -> Cell:
    return Cell.parse(str(row.cell))


def heading(page: Page, number: int = 0) -> str:
    return page.locator("#cards h3").nth(number).inner_text()


def reasons(page: Page) -> list[str]:
    return page.locator("#nothing .reasons").locator("> li").all_inner_texts()


def ways(page: Page) -> list[str]:
    return page.locator("#nothing .ways li").all_inner_texts()


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_the_first_screen_lists_wheels_on_demand_and_yanked_ones_not_at_all(page: Page, wheels: list[WheelRow]) -> None:
    assert count(page) == len(wheels)
    assert page.locator("#cards > li, #table tr").count() == 0
    assert "checked" not in page.locator("body").inner_text()
    page.get_by_role("button", name="List all").click()
    assert query(page) == {"list": ["all"]}
    assert page.locator("#cards > li").count() == 0
    assert page.locator("#table caption").inner_text() == "All of them; a GPU shortens the list"
    first = page.locator("#table tbody tr").first.locator("th, td").all_inner_texts()
    assert first[1:5] == ["2.8.3.post2", "CK", "7.2", "2.13.0"], "the order in which the doctor offers wheels"


def test_a_button_chooses_each_of_the_common_gpus(page: Page) -> None:
    names = page.locator("#common button").all_inner_texts()
    assert len(names) == 6
    for name in names:
        page.get_by_role("button", name=name, exact=True).click()
        assert query(page) == {"gpu": [name]}
        assert page.locator("#cards > li").count() > 0
        assert not page.locator("#common").is_visible()
        page.go_back()


def test_pythons_are_in_version_order_and_wheels_that_differ_in_python_alone_are_one_entry(
    page: Page, wheels: list[WheelRow]
) -> None:
    pythons = page.locator('fieldset[data-axis="python"] label').evaluate_all("all => all.map(one => one.htmlFor)")
    assert pythons == ["python-any", *(f"python-3.{minor}" for minor in range(10, 15))]
    page.get_by_label("Your GPU").fill("MI300X")
    card = page.locator("#cards > li").first
    expect(card.locator(".fits")).to_have_text("ROCm 7.2 · torch 2.13.0 · Python 3.10 to 3.14")
    card.get_by_role("tab", name="URL").click()
    family = [row for row in wheels if "fa2.8.3.post2-rocm7.2-torch2.13.0-cp3" in str(row.cell)]
    assert card.locator(".steps li").count() == len(family) == 5
    choose(page, "python", "3.12")
    expect(page.locator("#cards .fits").first).to_have_text("ROCm 7.2 · torch 2.13.0 · Python 3.12")


FILTERS: dict[tuple[str, str], Callable[[WheelRow], bool]] = {
    ("rocm", "6.4"): lambda row: cell_of(row).rocm == "6.4" and not cell_of(row).amd_torch,
    ("torch", "2.9.1"): lambda row: cell_of(row).torch == "2.9.1",
    ("backend", "triton"): lambda row: cell_of(row).backend == "triton",
    ("flash-attn", "2.6.3"): lambda row: cell_of(row).flash_attn == "2.6.3",
    ("python", "3.12"): lambda row: cell_of(row).python == "3.12" or "py3" in row.filename,
}


def test_a_filter_leaves_as_many_wheels_as_it_announced(page: Page, wheels: list[WheelRow]) -> None:
    for (axis, value), takes in FILTERS.items():
        wanted = sum(map(takes, wheels))
        assert 0 < wanted < len(wheels)
        assert standing(page, axis, "Triton" if value == "triton" else value) == f"{wanted} wheels"
        choose(page, axis, value)
        assert (count(page), query(page)) == (wanted, {axis: [value]})
        choose(page, axis, "any")
        assert count(page) == len(wheels)


def test_a_gpu_is_chosen_by_its_name(page: Page, wheels: list[WheelRow], matrix: Matrix) -> None:
    for written, arch in (("7900xtx", "gfx1100"), ("AMD Instinct MI300X OAM", "gfx942"), ("gfx1030", "gfx1030")):
        page.get_by_label("Your GPU").fill(written)
        assert count(page) == sum(offers(matrix, row, arch) for row in wheels)
        assert page.locator("#gpu-note").inner_text().startswith(f"{arch} ")


def offers(matrix: Matrix, row: WheelRow, arch: str) -> bool:
    """Whether a wheel promises a GPU, or may work on it with one torch of its ROCm."""
    cell = Cell.parse(str(row.cell))
    may_work = cell.backend is Backend.TRITON and arch in matrix.rocm[cell.rocm].may_work
    return arch in row.offload_archs or may_work


def test_strix_halo_may_work_and_the_card_says_why_nobody_promises_it(page: Page) -> None:
    page.get_by_label("Your GPU").fill("Strix Halo")
    assert page.locator("#gpu-note").inner_text() == "gfx1151 · CK may work · Triton may work"
    card = page.locator("#cards > li").first
    expect(card.locator(".badge.recommended")).to_have_text("try this first")
    expect(card.locator(".caution")).to_contain_text("does not list gfx1151, so no wheel promises it: AMD ships")
    choose(page, "backend", "ck")
    preview = page.locator("#cards > li").first
    expect(preview.locator(".version")).to_have_text("flash-attn 2.8.4 preview (commit 4a948e9)")
    expect(preview.locator(".caution")).to_contain_text("are compiled for gfx1151, and not proved on it")
    expect(preview.locator("pre").last).to_contain_text("/ck-preview/")


def test_a_gpu_that_nothing_works_on_leads_to_what_its_owners_use(page: Page, visit: Visit, empty_site: str) -> None:
    page.get_by_label("Your GPU").fill("RX 6700 XT")
    assert page.locator("#nothing .title").inner_text() == "Does not work"
    assert reasons(page) == ["RX 6700 XT: PyTorch does not build torch for gfx1031 on any ROCm of the matrix"]
    override, fallback, show, docs = ways(page)
    assert "export HSA_OVERRIDE_GFX_VERSION=10.3.0" in override
    assert fallback.startswith("flash-attention-amd: ")
    assert docs == "Which GPUs each backend supports"
    assert len(ways(visit(empty_site).open("?gpu=gfx1010"))) == 1, "no override, and no documentation"
    (way,) = ways(visit(empty_site).open("?gpu=gfx1100&torch=2.15"))
    assert "simple/fallback/" in way
    page.get_by_role("button", name=show).click()
    assert query(page) == {"gpu": ["gfx1030"]}


def test_an_unknown_gpu_gets_no_wheels_but_the_way_to_its_name(page: Page) -> None:
    unknown = "No known GPU is named “RX 9080 XT”"
    for written, title in (("RX 9080 XT", unknown), ("RTX 4090", "This is an NVIDIA GPU")):
        page.get_by_label("Your GPU").fill(written)
        assert page.locator("#nothing .title").inner_text() == title
        assert page.locator("#count").inner_text() == "Which GPU?"
        assert page.locator("#cards > li, #table tr").count() == 0
        assert page.locator("#nothing :is(button, pre)").count() > 0, "no end without a next step"
        assert ("rocminfo" in page.locator("#nothing").inner_text()) == (title == unknown)


def test_a_gpu_without_rocm_is_told_so_with_what_works_instead(page: Page) -> None:
    for written in ("RX 580", "Vega 8", "gfx1310"):
        page.get_by_label("Your GPU").fill(written)
        assert page.locator("#nothing .title").inner_text() == "Does not work"
        expect(page.locator("#nothing")).to_contain_text("What works instead:")
        assert page.locator("#cards > li, #table tr").count() == 0


def test_the_options_that_a_wheel_refuses_are_shown_at_the_choice(visit: Visit, site: str) -> None:
    page = visit(site).open("?rocm=6.4&torch=2.9.1&backend=triton&flash-attn=2.8.3")
    unfold(page)
    hints = page.get_by_role("group", name="Backend").locator(".hint")
    expect(hints.nth(1)).to_contain_text("Each wheel lists those for which it raises an error")
    assert hints.get_by_role("link").get_attribute("href") == "docs/explanation/backends.html"
    page.get_by_text("GPUs, file, sha256 and checks").click()
    expect(page.locator("details .inside")).to_contain_text("Raises an error for float32; window_size; window_size, gr")
    choose(page, "backend", "ck")
    page.get_by_text("GPUs, file, sha256 and checks").first.click()
    expect(page.locator("details .inside").first).to_be_visible()
    expect(page.locator("details .inside").first).to_contain_text("Raises an error for float32; softcap; cache")


def test_the_limit_of_gfx1030_is_shown_for_this_gpu(page: Page) -> None:
    unfold(page)
    limit = page.get_by_text("the causal backward pass in bf16 does not fit its memory")
    expect(limit).to_be_hidden()
    page.get_by_label("Your GPU").fill("RX 6950 XT")
    expect(limit).to_be_visible()
    page.get_by_label("Your GPU").fill("MI300X")
    expect(limit).to_be_hidden()


def test_a_name_that_fits_several_gpus_asks_which(page: Page, wheels: list[WheelRow], matrix: Matrix) -> None:
    page.get_by_label("Your GPU").fill("RDNA 3")
    assert page.locator("#nothing .title").inner_text() == "Which one?"
    page.locator("#nothing button", has_text="gfx1101").click()
    assert count(page) == sum(offers(matrix, row, "gfx1101") for row in wheels)


TEXTS: dict[str, Callable[[WheelRow], bool]] = {
    "rocm64torch2.9": lambda row: "rocm64torch2.9" in row.filename,
    "MI300X ck": lambda row: "gfx942" in row.offload_archs and row.glibc is not None,
    "cp312-cp312": lambda row: "cp312-cp312" in row.filename,
    "verified gfx942": lambda row: "gfx942" in verified_archs(row),
}


def test_text_is_searched_word_by_word_and_is_one_step_back(page: Page, wheels: list[WheelRow]) -> None:
    unfold(page)
    page.get_by_label("Text").press_sequentially("rocm64torch2.9")
    assert count(page) < len(wheels)
    page.go_back()
    assert (count(page), page.get_by_label("Text").input_value()) == (len(wheels), "")
    for text, takes in TEXTS.items():
        page.get_by_label("Text").fill(text)
        assert count(page) == sum(map(takes, wheels)) > 0


def test_a_wheel_is_found_by_its_sha256(page: Page, wheels: list[WheelRow]) -> None:
    unfold(page)
    page.get_by_label("Text").fill(wheels[7].sha256)
    page.get_by_label("Text").press("Enter")
    assert (count(page), query(page)) == (1, {"q": [wheels[7].sha256]})
    page.get_by_text("GPUs, file, sha256 and checks").click()
    expect(page.locator("details .inside")).to_contain_text(wheels[7].filename)


def test_text_without_matches_differs_from_an_impossible_combination(page: Page) -> None:
    unfold(page)
    page.get_by_label("Text").fill("no such thing")
    expect(page.locator("#nothing")).to_contain_text("No wheel matches the text “no such thing”")
    page.get_by_role("button", name="Remove the text").click()
    assert count(page) > 0


def test_a_result_shows_the_facts_for_choosing(visit: Visit, site: str, wheels: list[WheelRow]) -> None:
    row = next(row for row in wheels if str(row.cell).startswith("fa2.8.3-rocm6.4-torch2.9.1-cp3"))
    page = visit(site).open(f"?q={row.sha256}")
    card = page.locator("#cards > li").inner_text()
    title = (
        "flash-attn 2.8.3",
        "CK",
        f"ROCm 6.4 · torch 2.9.1 · Python {cell_of(row).python}",
        f"for {row.offload_archs[0]} and 1 more" if len(row.offload_archs) == 2 else f"for {row.offload_archs[0]}",
    )
    for text in (*title, "glibc 2.28 or newer", "checked, not run on a GPU"):
        assert text in card
    assert row.sha256 not in card, "the details stay folded"
    page.get_by_text("GPUs, file, sha256 and checks").click()
    inside = page.locator("details .inside")
    for text in (row.sha256, f"Published: {row.published:%Y-%m-%d}", "MB", "symbols: passed", "gfx942 MI300A, MI300X"):
        expect(inside).to_contain_text(text)
    expect(inside).to_contain_text("gpu: not run (needs an AMD GPU, and none is visible here)")
    assert inside.get_by_role("link").first.get_attribute("href") == f"{row.url}#sha256={row.sha256}"


def test_a_wheel_has_one_status_for_the_chosen_gpu_in_card_table_and_heading(
    visit: Visit, site: str, wheels: list[WheelRow]
) -> None:
    row = next(row for row in wheels if verified_archs(row))
    page = visit(site).open(f"?q={row.sha256}")
    status, standing = page.locator("#cards .status"), page.locator("#standing")
    expect(status).to_have_text("executed in emulation for each GPU; verified on gfx942")
    page.get_by_label("Your GPU").fill("MI300X")
    expect(status).to_have_text("verified on gfx942")
    expect(standing).to_have_text("1 verified on gfx942")
    page.get_by_label("Your GPU").fill("MI210")
    expect(status).to_have_text("executed in emulation for gfx90a; verified on gfx942, not on yours")
    expect(standing).to_have_text("1 executed in emulation for gfx90a")
    page.get_by_text("GPUs, file, sha256 and checks").click()
    inside = page.locator("details .inside")
    expect(inside).to_contain_text("verified on gfx942 (AMD Instinct MI300X), torch 2.9.1+rocm6.4, 2026-11-22")
    expect(inside).to_contain_text("NVIDIA H200 in the non-AMD GPU test mode")
    page.goto(f"{site}?gpu=MI300X&backend=triton")
    shown = set(page.locator("#table td:last-child").all_inner_texts())
    assert {"verified on gfx942", "executed in emulation for gfx942"} <= shown


def test_a_ck_wheel_says_how_many_of_its_kernels_an_emulator_executed(
    visit: Visit, matrix: Matrix, tmp_path: Path
) -> None:
    row = row_of(matrix, Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-cp312-ck"))
    figures = {"gfx942 executed": 412, "gfx942 kernels": 2887}
    gates = [gate.model_copy(update={"figures": figures if gate.gate == "code-objects" else {}}) for gate in row.gates]
    folder = write_page(tmp_path / "site", matrix, [row.model_copy(update={"gates": tuple(gates)})])
    page = visit(f"{folder.as_uri()}/").open("?gpu=MI300X")
    text = "412 of 2887 kernels executed by an emulator, for gfx942"
    expect(page.locator("#cards .status")).to_have_text(f"checked, {text}")
    page.get_by_label("Your GPU").fill("MI210")
    expect(page.locator("#cards .status")).to_have_text("checked, not run on gfx90a")
    page.get_by_text("GPUs, file, sha256 and checks").click()
    expect(page.locator("details .inside .checks")).to_contain_text(text)


def test_a_partly_checked_wheel_lists_the_missing_checks_and_is_not_called_verified(
    visit: Visit, matrix: Matrix, tmp_path: Path
) -> None:
    cell = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-py3-triton")
    row = row_of(matrix, cell, gates=quick_gates(cell.id))
    folder = write_page(tmp_path / "site", matrix, [with_evidence(row, amd_validation(row))])
    page = visit(f"{folder.as_uri()}/").open("?gpu=MI300X")
    expect(page.locator("#cards .status")).to_have_text("not checked: numbers; tested on gfx942")
    expect(page.locator("#standing")).to_have_text("1 not checked: numbers")
    page.get_by_text("GPUs, file, sha256 and checks").click()
    expect(page.locator("details .inside")).to_contain_text("emulation: not run (left out by --quick)")
    assert "verified" not in page.locator("body").inner_text()


def test_results_of_a_non_amd_gpu_give_no_badge(visit: Visit, site: str, wheels: list[WheelRow]) -> None:
    row = next(row for row in wheels if row.evidence and not verified_archs(row))
    page = visit(site).open(f"?q={row.sha256}&gpu=MI300X")
    assert page.locator(".status.verified").count() == 0
    expect(page.locator("#cards")).not_to_contain_text("verified on")
    page.get_by_text("GPUs, file, sha256 and checks").click()
    expect(page.locator("details .inside")).to_contain_text("this proves nothing about AMD GPUs")


def test_the_back_button_takes_back_one_choice_after_the_other(page: Page, wheels: list[WheelRow]) -> None:
    choose(page, "rocm", "6.4")
    first = count(page)
    choose(page, "backend", "ck")
    assert count(page) < first
    page.go_back()
    assert (count(page), query(page)) == (first, {"rocm": ["6.4"]})
    assert page.locator("#backend-any").is_checked()
    page.go_back()
    assert count(page) == len(wheels)
    page.go_forward()
    assert count(page) == first


def test_choices_are_listed_and_dropped_one_by_one_or_all(visit: Visit, site: str, wheels: list[WheelRow]) -> None:
    page = visit(site).open("?rocm=6.4&backend=ck&gpu=MI300X&q=cp311")
    chosen = page.get_by_label("Your choices")
    assert chosen.locator("li").all_text_contents() == [
        f"{one}{DROP}" for one in ("ROCm 6.4", "CK", "MI300X", "“cp311”")
    ]
    page.get_by_role("button", name="Remove CK").click()
    assert query(page) == {"rocm": ["6.4"], "gpu": ["MI300X"], "q": ["cp311"]}
    page.get_by_role("button", name="Clear all").click()
    assert (count(page), query(page)) == (len(wheels), {})


def test_beyond_ten_wheels_a_table_follows_the_recommended_card(
    visit: Visit, site: str, wheels: list[WheelRow]
) -> None:
    page = visit(site).open("?gpu=MI300X")
    assert page.locator("#cards > li").count() == 1
    expect(page.locator("#cards .badge.recommended")).to_have_text("recommended")
    rows = page.locator("#table tbody tr")
    first = rows.count()
    assert first < len(wheels) - 1
    page.get_by_role("button", name=re.compile(r"^Show \d+ more")).click()
    assert rows.count() == 2 * first
    assert page.evaluate("document.activeElement.textContent") == rows.nth(first).get_by_role("button").text_content()
    rows.nth(2).get_by_role("button").click()
    opened = page.locator("#table .opened")
    expect(opened.locator(".steps li")).to_have_count(2)
    rows.nth(2).get_by_role("button").click()
    expect(opened).to_have_count(0)


@pytest.mark.parametrize(
    ("asked", "first", "way"),
    [
        pytest.param(
            "?rocm=6.2&python=3.14",
            "torch 2.5.1 for ROCm has no Python 3.14; it has 3.12, 3.11, 3.10, 3.9",
            "Remove Python 3.14",
            id="two-rules-together",
        ),
        pytest.param(
            "?flash-attn=2.6.3&backend=triton&rocm=6.4&python=3.12",
            "flash-attn 2.6.3 has no triton backend",
            "Use the CK wheel",
            id="only-what-contradicts",
        ),
    ],
)
def test_an_impossible_combination_has_its_reason_and_a_suggestion(
    visit: Visit, site: str, asked: str, first: str, way: str
) -> None:
    page = visit(site).open(asked)
    assert page.locator("#nothing .title").inner_text() == "Does not work"
    assert reasons(page)[0] == first
    page.get_by_role("button", name=way).first.click()
    assert count(page) > 0
    assert page.locator("#nothing *").count() == 0


def test_an_option_that_leads_to_nothing_is_marked_and_can_be_chosen(visit: Visit, site: str) -> None:
    page = visit(site).open("?rocm=7.14&backend=ck")
    assert standing(page, "torch", "2.9.1") == "impossible with your other choices"
    assert standing(page, "rocm", "7.0") == "no wheel"
    choose(page, "torch", "2.9.1")
    assert reasons(page)[0] == "torch 2.9.1 is not on the ROCm 7.14 index; it is on 6.4, 6.3"


def test_where_nothing_fits_a_wheel_whose_symbols_the_torch_has_is_named(
    visit: Visit, matrix: Matrix, tmp_path: Path
) -> None:
    row = row_of(matrix, Cell.parse("fa2.8.3-rocm7.2-torch2.13.0-cp312-ck"), other_torches=("2.12",))
    with serving(write_page(tmp_path, matrix, [row])) as address:
        found = visit(address).open("?rocm=7.2&torch=2.12.1").locator("#nothing")
        expect(found).to_contain_text("May work, symbols measured: your torch defines all that the wheel for torch")
        assert found.locator("code").inner_text() == f"pip install --no-deps {row.url}#sha256={row.sha256}"
        card = visit(address).open("?rocm=7.2&torch=2.13.0").locator(".card details")
        card.locator("summary").click()
        expect(card).to_contain_text("May work with torch 2.12: these define all symbols that it needs.")
        for other in ("2.11.0", "2.12.1%2Brocm7.2.4.git0123abc"):
            expect(visit(address).open(f"?rocm=7.2&torch={other}").locator("#nothing")).not_to_contain_text("symbols")


def test_a_missing_wheel_can_be_requested(visit: Visit, site: str) -> None:
    page = visit(site).open("?rocm=7.0&torch=2.10.0&python=3.12&gpu=MI300X")
    assert page.locator("#nothing .title").inner_text() == "Not published yet"
    link = page.get_by_role("link", name="Request this wheel")
    asked = urlsplit(str(link.get_attribute("href")))
    assert f"{asked.scheme}://{asked.netloc}{asked.path}" == "https://github.com/OWNER/REPO/issues/new"
    fields = {"torch": ["2.10.0"], "rocm": ["7.0"], "python": ["3.12"], "gpu": ["MI300X"]}
    assert parse_qs(asked.query) == {"template": ["wheel-request.yml"], **fields}
    assert any(way.startswith(("Remove ROCm 7.0", "Remove torch 2.10.0")) for way in ways(page))


def test_of_several_ways_out_the_cheapest_change_is_offered_first(visit: Visit, site: str) -> None:
    page = visit(site).open("?rocm=7.14&torch=2.9.1&backend=ck")
    assert [way.split()[0:3] for way in ways(page)] == [["Use", "the", "Triton"], ["Remove", "ROCm", "7.14"]]


def test_a_wheel_request_is_answered_with_the_page_that_shows_its_wheels(visit: Visit, site: str) -> None:
    body = "### torch\n\n2.9.0+rocm6.4\n\n### Python\n\n3.11.7\n\n### GPU\n\nAMD Instinct MI300X\n\n### Backend\n\nck\n"
    page = visit(site).open(f"?{urlsplit(search_link(site, body)[1:-1]).query}")
    assert count(page) > 0
    chosen = page.locator("#chosen li").all_inner_texts()
    assert [text.removesuffix(DROP).strip() for text in chosen] == [
        *("ROCm 6.4", "torch 2.9.1", "Python 3.11", "CK", "AMD Instinct MI300X")
    ]


def test_yanked_wheels_are_shown_on_demand_with_their_reason_and_no_line(visit: Visit, site: str) -> None:
    page = visit(site).open("?q=yanked")
    assert count(page) == 0
    expect(page.locator("#nothing")).to_contain_text("wrong kernels for gfx950")
    page.get_by_role("button", name="Show 2 yanked wheels").click()
    assert (count(page), query(page)) == (2, {"yanked": ["1"], "q": ["yanked"]})
    card = page.locator("#cards > li").first
    expect(card).to_contain_text("Yanked: wrong kernels for gfx950; take the wheel with build tag 1")
    assert card.get_by_role("button").count() == 0
    assert card.locator(".version").evaluate("found => getComputedStyle(found).textDecorationLine") == "line-through"
    assert page.get_by_label("Show yanked wheels").is_checked()


@pytest.fixture
def hostile_site(matrix: Matrix, tmp_path: Path) -> Iterator[str]:
    """A page whose manifest has HTML in every text from outside."""
    row = row_of(matrix, CK)
    rows = [
        row.model_copy(update={"yanked": HOSTILE}),
        row.model_copy(update={"filename": f"{HOSTILE}.whl", "url": "javascript:document.title=3"}),
        row.model_copy(update={"filename": "third.whl", "offload_archs": (HOSTILE,), "glibc": HOSTILE}),
        with_evidence(
            row.model_copy(update={"filename": "fourth.whl"}),
            nvidia_validation(hardware=H200.model_copy(update={"device": HOSTILE})),
        ),
    ]
    with serving(write_page(tmp_path, matrix, rows)) as address:
        yield address


def test_untrusted_text_is_shown_as_text(visit: Visit, hostile_site: str) -> None:
    page = visit(hostile_site).open(f"?yanked=1&rocm={HOSTILE}")
    assert reasons(page)[0].startswith(f"no wheels for ROCm {HOSTILE.lower()}; available: ")
    page.goto(f"{hostile_site}?yanked=1")
    assert count(page) == 4
    for summary in page.get_by_text("GPUs, file, sha256 and checks").all():
        summary.click()
    expect(page.locator("#cards")).to_contain_text(f"Yanked: {HOSTILE}")
    expect(page.locator("#cards")).to_contain_text(f"File: {HOSTILE}")
    expect(page.locator("#cards")).to_contain_text(f"numbers computed on {HOSTILE}")
    assert page.locator("#cards a[href^=javascript]").count() == 0
    assert page.locator("img, main script").count() == 0
    assert page.title() == "flash-attn wheels for AMD ROCm"


@pytest.fixture(scope="module")
def empty_site(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(write_page(tmp_path_factory.mktemp("empty"), matrix, [], docs=False)) as address:
        yield address


def test_an_empty_site_still_explains_impossible_combinations(visit: Visit, empty_site: str) -> None:
    page = visit(empty_site).open()
    expect(page.locator("#nothing")).to_contain_text("Nothing is published yet")
    assert ways(page) == ["Show the planned wheels"]
    assert page.get_by_role("link", name="Documentation").count() == 0
    choose(page, "backend", "ck")
    expect(page.locator("#nothing")).to_contain_text("Not published yet")
    assert ways(page) == ["Show the planned wheels"], "no end without a next step"
    assert page.get_by_role("link", name="Request this wheel").count() == 0
    page.get_by_label("Your GPU").fill("RX 6800")
    assert reasons(page) == ["RX 6800: CK in flash-attn up to 2.8.3.post2 does not support gfx1030"]


def test_every_link_of_the_page_leads_somewhere(page: Page, site: str) -> None:
    links = page.locator(".doctor a, body > footer a").evaluate_all("found => found.map(link => link.href)")
    own = [link for link in links if link.startswith(site)]
    assert {link.removeprefix(site) for link in own} == {"doctor.py", "docs/", "packages.html"}
    for link in own:
        assert page.context.request.get(link).ok, link


def test_without_javascript_the_page_leads_to_the_lists(visit: Visit, site: str) -> None:
    page = visit(site, java_script_enabled=False).open()
    assert page.locator("noscript p").is_visible()
    assert page.locator("noscript a").count() == 2
    assert not page.locator("#app").is_visible()


def test_the_page_works_as_a_file(visit: Visit, matrix: Matrix, wheels: list[WheelRow], tmp_path: Path) -> None:
    folder = write_page(tmp_path / "a folder+", matrix, example_rows(matrix))
    page = visit(f"{folder.as_uri()}/").open("?backend=ck")
    assert count(page) == sum(row.glibc is not None for row in wheels)
    choose(page, "rocm", "6.4")
    lines = page.locator("#cards > li").first.locator("pre").all_text_contents()
    assert [line.partition("==")[0] for line in lines] == [
        "pip install torch",
        f"pip install --index-url {folder.as_uri()}/simple/rocm64/torch2.9/ck/ flash-attn",
    ]
    assert page.locator("#doctor-line").inner_text() == "python3 doctor.py"
    page.go_back()
    assert page.locator("#rocm-any").is_checked()


def square(page: Page, name: str) -> str:
    return f'#coverage-view button[aria-label*="{name}"]'


def test_the_coverage_counts_each_square_and_gives_the_reason_of_an_empty_one(
    visit: Visit, site: str, wheels: list[WheelRow], matrix: Matrix
) -> None:
    page = visit(site).open("?view=coverage")
    ck = [row for row in wheels if row.cell and "rocm6.4-torch2.9.1-cp3" in row.cell]
    wanted = sum(not preview_commit(version) for version in matrix.flash_attn) * len(matrix.python)
    found = page.locator(square(page, "ROCm 6.4, torch 2.9.1, CK"))
    assert found.inner_text() == f"{len(ck)}/{wanted}"
    found.hover()
    reason = page.locator("#coverage-view .beside").first
    expect(reason).to_contain_text(f"{len(ck)} of {wanted} published, {wanted - len(ck)} missing")
    square_box, reason_box = found.bounding_box(), reason.bounding_box()
    assert square_box
    assert reason_box
    assert abs(reason_box["y"] - square_box["y"]) < square_box["height"]
    beside = (
        reason_box["x"] - square_box["x"] - square_box["width"],
        square_box["x"] - reason_box["x"] - reason_box["width"],
    )
    assert any(0 <= gap < 20 for gap in beside)
    empty = page.locator(square(page, "ROCm 7.14, torch 2.9.1, Triton"))
    assert empty.inner_text() == "\N{EN DASH}"
    assert "torch 2.9.1 is not on the ROCm 7.14 index" in str(empty.get_attribute("aria-label"))
    assert page.locator("#coverage-view table").count() == 2


def test_the_coverage_tells_what_needs_a_runner_from_what_is_missing(visit: Visit, empty_site: str) -> None:
    visitor = visit(empty_site)
    page = visitor.open("?view=coverage")
    ck, triton = (page.locator(square(page, f"ROCm 6.4, torch 2.9.1, {name}:")) for name in ("CK", "Triton"))
    assert re.fullmatch("0/[1-9][0-9]*", ck.inner_text())
    assert re.search(r"0 of (\d+) published, \1 not built here: needs a runner\.", str(ck.get_attribute("aria-label")))
    assert re.search(r"0 of (\d+) published, \1 missing", str(triton.get_attribute("aria-label")))
    assert (ck.get_attribute("class"), triton.get_attribute("class")) == ("square runner", "square none")
    assert page.locator(".legend").get_by_text("not built here").count() == 1
    notes = page.locator("#coverage-view > details").get_by_text("set the repository variable")
    assert notes.count() == 1, "the owner's next step is given once, and folded"
    assert not notes.is_visible()
    assert visitor.violations() == []


def test_a_wheel_that_needs_a_runner_says_so_and_how_to_get_one(visit: Visit, empty_site: str) -> None:
    visitor = visit(empty_site)
    for query, needs_runner in (
        ("?backend=ck", True),
        ("?backend=triton", False),
        ("?rocm=7.2", False),  # either backend
        ("?flash-attn=2.6.3", True),  # a release with CK alone
    ):
        box = visitor.open(query).locator("#nothing")
        found = box.inner_text()
        assert "Not published yet" in found
        assert ("Supported, but not built here: needs a runner." in found) == needs_runner
        assert ("set the repository variable" in str(box.text_content())) == needs_runner
        assert "set the repository variable" not in found, "it is the owner's step"
        assert ("Supported, but not built yet." in found) != needs_runner


def test_squares_match_the_legend(visit: Visit, site: str, matrix: Matrix) -> None:
    page = visit(site).open("?view=coverage")
    counts_by_square = compute_coverage(expand_matrix(matrix), example_rows(matrix)).counts_by(
        lambda cell: (cell.rocm, cell.torch, cell.backend)
    )
    looks: dict[str, set[tuple[bool, bool]]] = {}
    for (rocm, torch, backend), counts in counts_by_square.items():
        if torch not in matrix.torch:
            continue  # of an image of AMD, and excluded
        found = page.locator(square(page, f"ROCm {rocm}, torch {torch}, {'CK' if backend == 'ck' else 'Triton'}:"))
        kind = str(found.get_attribute("class")).removeprefix("square ")
        looks.setdefault(kind, set()).add((counts.published > 0, counts.published == counts.wanted))
        assert ("!" in found.inner_text()) == (counts.yanked > 0) == (kind == "yanked")
        assert (kind == "excluded") == (counts.wanted == 0)
    assert looks.pop("yanked") == {(True, False)}
    legend = {"full": {(True, True)}, "part": {(True, False)}, "none": {(False, False)}, "excluded": {(False, True)}}
    assert looks == legend


def test_a_square_of_the_coverage_chooses_its_wheels(visit: Visit, site: str, wheels: list[WheelRow]) -> None:
    page = visit(site).open("?view=coverage&python=3.11")
    page.locator(square(page, "ROCm 6.4, torch 2.9.1, CK")).click()
    assert query(page) == {"rocm": ["6.4"], "torch": ["2.9.1"], "backend": ["ck"]}
    assert count(page) == sum("rocm6.4-torch2.9.1-cp3" in str(row.cell) for row in wheels)
    assert page.evaluate("document.activeElement.id") == "results"
    page.go_back()
    assert page.locator("#coverage-view").is_visible()


def test_a_triton_wheel_for_another_build_of_torch_leaves_that_torch_alone(visit: Visit, site: str) -> None:
    page = visit(site).open("?gpu=RX+9060+XT&torch=2.12.0%2Brocm7.14.0&python=cp313")
    card = page.locator("#cards .card").first
    assert "any ROCm · torch 2.12" in card.locator(".fits").inner_text()
    assert "PyTorch has no torch 2.12.1 for ROCm 7.14.0" in card.inner_text()
    assert "download.pytorch.org" not in card.inner_text()
    assert standing(page, "rocm", "6.4") == standing(page, "rocm", "7.14")
    assert query(page) == {"gpu": ["RX 9060 XT"], "torch": ["2.12.0+rocm7.14.0"], "python": ["cp313"]}
    choose(page, "backend", "triton")
    assert query(page)["torch"] == ["2.12.1+rocm7.14.0"]


def test_the_result_is_announced(page: Page) -> None:
    choose(page, "backend", "ck")
    choose(page, "rocm", "7.14")
    choose(page, "torch", "2.9.1")
    expect(page.get_by_role("status")).to_have_text(re.compile("^No wheel. torch 2.9.1 is not on the ROCm 7.14 index"))
