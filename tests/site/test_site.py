"""`index --dest` generates a site in one folder that links to the wheels; its packages page lists each of them."""

from __future__ import annotations

import shutil
from itertools import permutations
from pathlib import Path

import pytest

from release_factory import content_of, flash_attn_wheel, make_release, path_of, reachable, stub_wheel
from report_rows import BLANK, code_lines, einops_row, rows_of, shown, table_rows, tokens
from small_matrix import small_matrix
from validations import H200, amd_validation, nvidia_validation, with_evidence
from wheelfactory.cli import main
from wheelfactory.core.errors import BAD_INPUT, DONE
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.site.site import GENERATED, Site

CELL = "fa2.8.3-rocm7.2-torch2.13.0-py3-triton"


@pytest.fixture(scope="module")
def read_only_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release directory with one wheel of a cell and one dependency."""
    folder = tmp_path_factory.mktemp("made")
    wheels = [flash_attn_wheel(folder / "made", CELL), stub_wheel(folder / "made", "einops", "0.8.2")]
    make_release(folder / "a release", wheels)
    return folder / "a release"


@pytest.fixture(scope="module")
def read_only_site(read_only_release: Path) -> Path:
    """The site of that release."""
    folder = read_only_release.parent / "site"
    assert main(["index", str(read_only_release), "--dest", str(folder), "--site", "https://example.org/"]) == DONE
    return folder


@pytest.fixture
def release(read_only_release: Path, tmp_path: Path) -> Path:
    """A copy of that release, which a test can change."""
    return shutil.copytree(read_only_release, tmp_path / "a release")


@pytest.fixture
def site(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The site of that release."""
    folder = tmp_path / "site"
    assert main(["index", str(release), "--dest", str(folder), "--site", "https://example.org/"]) == DONE
    assert str(folder) in capsys.readouterr().out
    return folder


def test_the_manifest_gains_only_the_addresses_which_the_index_has_too(
    read_only_site: Path, read_only_release: Path
) -> None:
    site, release = read_only_site, read_only_release
    files = {path_of(link.url.partition("#")[0]) for link in reachable(site / "simple" / "index.html")}
    assert files == {release / "wheels" / row.filename for row in read_manifest(release)}
    rows = read_manifest(site)
    assert [row.model_copy(update={"url": None}) for row in rows] == list(read_manifest(release))
    assert [path_of(str(row.url)) for row in rows] == [release / "wheels" / row.filename for row in rows]


def test_it_has_lists_search_page_and_doctor_which_say_what_they_are(read_only_site: Path) -> None:
    for name in ("packages.md", "packages.html"):
        listed = (read_only_site / name).read_text()
        assert "--index-url https://example.org/simple/rocm72/torch2.13/triton/" in listed
    assert "flash_attn-2.8.3+rocm72torch2.13triton-1-py3-none-any.whl</a> for " in listed
    root, index, files = (
        (read_only_site / name / "index.html").read_text()
        for name in ("simple", "simple/rocm72/torch2.13/triton", "simple/rocm72/torch2.13/triton/flash-attn")
    )
    assert "Package indexes of flash-attn wheels for AMD GPUs" in root
    assert '<a href="../index.html">Find the wheel for your GPU</a>' in root
    assert "Package index of flash-attn wheels for ROCm 7.2, torch 2.13, backend triton" in index
    for page in (root, index, files, listed):
        assert "flash-attn: BSD-3-Clause, https://github.com/Dao-AILab/flash-attention. Newest wheel: 20" in page
    assert index.count("<a ") == len({"flash-attn", "einops"}), "an index has no link but those of its projects"
    assert "search/data.js" in (read_only_site / "index.html").read_text()
    assert CELL.partition("-")[0].removeprefix("fa") in (read_only_site / "search/data.js").read_text()
    assert "https://example.org/" in (read_only_site / "doctor.py").read_text()


def test_a_site_of_local_files_is_marked(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content_of(release)
    assert main(["index", str(release), "--dest", str(tmp_path / "site")]) == DONE
    assert content_of(release) == before, "a release directory itself is left alone"
    assert f"warning: this site links to local files in {release / 'wheels'}" in capsys.readouterr().err


def test_the_doctor_of_a_release_directory_uses_the_given_address(release: Path) -> None:
    assert main(["index", str(release), "--site", "https://example.org/"]) == DONE
    assert 'SITE = "https://example.org/"' in (release / "doctor.py").read_text()


def test_it_links_to_its_documentation_only_where_it_has_one(site: Path, release: Path) -> None:
    without = (site / "search/data.js").read_text()
    (site / "docs").mkdir()
    (site / "docs/index.html").write_text("documentation")
    assert main(["index", str(release), "--dest", str(site), "--site", "https://example.org/"]) == DONE
    assert ('"docs":false' in without, '"docs":true' in (site / "search/data.js").read_text()) == (True, True)


def test_the_same_manifest_gives_the_same_site_without_leftovers(site: Path, release: Path) -> None:
    before = content_of(site)
    (site / "simple" / "rocm62").mkdir()
    (site / "simple" / "rocm62" / "index.html").write_text("of a release that is no more")
    assert main(["index", str(release), "--dest", str(site), "--site", "https://example.org/"]) == DONE
    assert content_of(site) == before


def test_the_list_alone_can_be_written_and_a_destination_that_is_a_file_is_refused_before_writing(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(release), "--packages", str(tmp_path / "packages.md")]) == DONE
    assert "flash_attn-2.8.3%2Brocm72torch2.13triton-1-py3-none-any.whl" in (tmp_path / "packages.md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".md"] == ["packages.md"]
    (tmp_path / "file").write_text("kept")
    assert main(["index", str(release), "--dest", str(tmp_path / "file")]) == BAD_INPUT
    assert "not a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"


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
    assert headings(Site(MATRIX, rows).packages_page()) == [
        "## ROCm 7.14, torch 2.14, ck",
        "## ROCm 6.4, torch 2.9, ck",
        "## ROCm 6.4, torch 2.9, triton",
        "## Dependencies",
        "## GPUs",
    ]


def test_a_preview_stands_apart_with_its_commit(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, [CELLS[0], CELLS[0].replace("2.8.3", "2.8.4+git4a948e9")])
    page = Site(MATRIX, rows).packages_page()
    assert headings(page)[:2] == ["## ROCm 6.4, torch 2.9, ck", "## ROCm 6.4, torch 2.9, ck-preview"]
    assert "2.8.4 preview (commit 4a948e9)" in [cells[0] for cells in table_rows(page)]
    assert b"ROCm 6.4, torch 2.9, ck-preview" in Site(MATRIX, rows).packages_html()


def test_a_row_has_the_facts_for_choosing_a_wheel(rows: tuple[WheelRow, ...]) -> None:
    (ck,) = (row for row in rows if row.cell == CELLS[0])
    expected = ["2.8.3", "3.11", "gfx942", "1.2 MB", "2.28", "2026-01-01", ck.sha256[:12], "wheel"]
    assert expected in table_rows(Site(MATRIX, rows).packages_page())
    assert ["gfx942", "Instinct MI300A, MI300X, MI308X, MI325X"] in table_rows(Site(MATRIX, rows).packages_page())


def test_every_file_is_linked_with_its_whole_digest(rows: tuple[WheelRow, ...]) -> None:
    local = {f"wheels/{row.filename.replace('+', '%2B')}#sha256={row.sha256}" for row in rows}
    assert set(links(Site(MATRIX, rows).packages_page())) == local
    for site in (SITE, f"{SITE}/"):
        assert set(links(Site(MATRIX, rows, site).packages_page())) == {f"{SITE}/{name}" for name in local}
    elsewhere = rows[0].model_copy(update={"url": "https://host.example/a%2Bb.whl"})
    (found,) = links(Site(MATRIX, [elsewhere], SITE).packages_page())
    assert found == f"https://host.example/a%2Bb.whl#sha256={elsewhere.sha256}", "it has an address of its own"


def test_each_group_has_its_install_line_if_the_site_is_known(rows: tuple[WheelRow, ...]) -> None:
    assert code_lines(Site(MATRIX, rows, SITE).packages_page()) == [
        f"pip install --index-url {SITE}/simple/{index}/ flash-attn"
        for index in ("rocm7.14/torch2.14/ck", "rocm64/torch2.9/ck", "rocm64/torch2.9/triton")
    ]
    assert code_lines(Site(MATRIX, rows).packages_page()) == []


def test_a_yanked_wheel_and_one_that_ran_on_a_gpu_are_marked(rows: tuple[WheelRow, ...]) -> None:
    hostile = H200.model_copy(update={"device": "H200|[x](http://d.example) @all"})
    ran, computed, *others = rows
    yanked = others[0].model_copy(update={"yanked": "a|b [c](http://d.example) @all"})
    computed = with_evidence(computed, nvidia_validation(hardware=hostile))
    page = Site(MATRIX, [with_evidence(ran, amd_validation()), computed, yanked, *others[1:]]).packages_page()
    gates = [cells[-1] for cells in table_rows(page)]
    assert gates.count("wheel, verified on gfx942") == 1
    mode = "in the non-AMD GPU test mode"
    (marked,) = (text.replace(BLANK, "") for text in gates if mode in text)
    assert marked == f"wheel, numbers computed on H200|[x](http://d.example) @all {mode}"
    assert "wheel yanked: a|b [c](http://d.example) @all" in shown(page)
    assert "3 flash-attn wheels, 1 of them yanked." in page
    assert len(links(page)) == len(rows)


def test_the_same_rows_give_the_same_page_whatever_their_order(rows: tuple[WheelRow, ...]) -> None:
    (page,) = {Site(MATRIX, order, SITE).packages_page() for order in permutations(rows)}
    assert page.startswith(f"{GENERATED}\n")
    assert "0 flash-attn wheels." in Site(MATRIX, []).packages_page()


def test_without_any_ck_wheel_visitors_are_told_and_the_owner_learns_what_to_set(rows: tuple[WheelRow, ...]) -> None:
    ck, triton, *_ = rows
    assert "does not build" not in Site(MATRIX, [ck]).packages_page()
    for page in (shown(Site(MATRIX, [triton]).packages_page()), Site(MATRIX, [triton]).packages_html().decode()):
        visitors, owner = page.split("For the owner of this site")
        assert "4 more CK wheels would work, but this site does not build them." in visitors
        assert "set the repository variable WHEELFACTORY_RUNNER to its label" in owner
        assert not any(word in visitors for word in ("variable", "runner", "cell"))
        assert "docs/how-to/self-hosted-runners.md" in owner


def test_dependencies_that_only_some_indexes_have_are_named(rows: tuple[WheelRow, ...], tmp_path: Path) -> None:
    kernels = einops_row(tmp_path).model_copy(
        update={"project": "amd-aiter", "filename": "amd_aiter-0.0.20260602-py3-none-any.whl"}
    )
    assert "Every index has these too." in Site(MATRIX, rows).packages_page()
    site = Site(MATRIX, [*rows, kernels])
    for page in (site.packages_page(), site.packages_html().decode()):
        assert "Every index has these too; amd-aiter only those of Triton previews." in page
