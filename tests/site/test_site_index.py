"""The pages of the index, read by pypi-simple as pip and uv read them."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pypi_simple import DistributionPackage, IndexPage, ProjectPage, RepositoryPage

from release_factory import content_of, flash_attn_wheel, links_on, make_release, path_of, plain_row, stub_wheel
from wheelfactory.core.label import index_path
from wheelfactory.release.directory import write_pages
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.index import render_index

CELLS = (
    "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
    "fa2.8.3-rocm6.4-torch2.9.1-cp312-ck",
    "fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
    "fa2.8.3-rocm6.4-torch2.8.0-cp311-ck",
    "fa2.8.3-rocm7.14-torch2.14.1-py3-triton",
)
INDEXES = (
    "simple/rocm64/torch2.9/ck",
    "simple/rocm64/torch2.9/triton",
    "simple/rocm64/torch2.8/ck",
    "simple/rocm7.14/torch2.14/triton",
)
BASE = "https://host.example/"


def a_row(
    label: str | None, filename: str = "flash_attn-2.8.3+{label}-1-py3-none-any.whl", **changed: object
) -> WheelRow:
    """A row of flash-attn, or of einops if it has no label."""
    project = "flash-attn" if label else "einops"
    named = {"project": project, "version": "2.8.3", "requires_python": ">=3.9", "label": label}
    return plain_row(filename.format(label=label), **{**named, **changed})


FLASH_ATTN = a_row("rocm64torch2.9")
EINOPS = a_row(None, "einops-0.8.2-py3-none-any.whl")


def read_project(pages: dict[str, bytes], index: str, project: str = "flash-attn") -> list[DistributionPackage]:
    """The files of a project on an index, as a client sees them."""
    name = f"{index}/{project}/index.html"
    return ProjectPage.from_html(project, pages[name], base_url=BASE + name).packages


def read_one(row: WheelRow) -> DistributionPackage:
    """The file of a flash-attn row, as a client sees it."""
    assert row.index_key
    (package,) = read_project(render_index([row]), index_path(row.index_key))
    return package


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of all `CELLS` with einops."""
    folder = tmp_path_factory.mktemp("release")
    made = tmp_path_factory.mktemp("made")
    wheels = [flash_attn_wheel(made, cell) for cell in CELLS]
    make_release(folder, [*wheels, stub_wheel(made, "einops", "0.8.2")])
    return folder


def test_a_client_reads_name_address_digests_and_metadata_of_a_file() -> None:
    package = read_one(FLASH_ATTN)
    assert package.filename == "flash_attn-2.8.3+rocm64torch2.9-1-py3-none-any.whl"
    assert package.url == f"{BASE}wheels/flash_attn-2.8.3%2Brocm64torch2.9-1-py3-none-any.whl"
    assert package.metadata_url == f"{package.url}.metadata"
    assert (package.digests, package.metadata_digests) == ({"sha256": "a" * 64}, {"sha256": "b" * 64})
    assert (package.has_metadata, package.is_yanked) == (True, False)


def test_a_client_reads_requires_python_and_no_older_name_of_core_metadata() -> None:
    """pip 22.3 to 23.1 read data-dist-info-metadata and then refuse the name that upstream writes in METADATA."""
    (page,) = (page for name, page in render_index([FLASH_ATTN]).items() if "flash-attn/" in name)
    (link,) = RepositoryPage.from_html(page).links
    assert link.attrs.keys() == {"href", "data-requires-python", "data-core-metadata"}
    for requires, shown in ((">=3.9,<3.15", ">=3.9,<3.15"), ("", None)):
        assert read_one(a_row("rocm64torch2.9", requires_python=requires)).requires_python == shown


text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@settings(max_examples=50)
@given(text, text)
@example('"><script>alert("x")</script>', "a 'b' & <c> &quot; &amp;quot;")
@example("{{ row.sha256 }} {% raw %}", "<!-- --> ]]>")
def test_any_text_reaches_the_client_as_it_is(reason: str, requires: str) -> None:
    package = read_one(a_row("rocm64torch2.9", yanked=reason, requires_python=requires))
    assert (package.is_yanked, package.yanked_reason, package.requires_python) == (True, reason, requires)


def test_a_label_has_the_index_of_its_rocm_torch_and_backend() -> None:
    cases: list[tuple[str, str]] = [
        ("rocm64torch2.9", "simple/rocm64/torch2.9/ck"),
        ("rocm64torch2.9triton", "simple/rocm64/torch2.9/triton"),
        ("rocm64torch2.10", "simple/rocm64/torch2.10/ck"),
        ("rocm7.14torch2.14", "simple/rocm7.14/torch2.14/ck"),
        ("rocm10.0torch2.15triton", "simple/rocm10.0/torch2.15/triton"),
        ("rocm64torch2.9git0123abc", "simple/rocm64/torch2.9/ck-preview"),
    ]
    for label, index in cases:
        pages = render_index([a_row(label)])
        assert [package.version for package in read_project(pages, index)] == [f"2.8.3+{label}"]


def test_an_index_lists_the_wheels_of_its_rocm_torch_and_backend_the_dependencies_and_no_other(release: Path) -> None:
    listed = {index: [link.text for link in links_on(release / index / "flash-attn/index.html")] for index in INDEXES}
    compiled = "flash_attn-2.8.3+rocm64torch2.{0}-1-cp{1}-cp{1}-manylinux_2_28_x86_64.whl"
    assert list(listed.values()) == [
        [compiled.format(9, 311), compiled.format(9, 312)],
        ["flash_attn-2.8.3+rocm64torch2.9triton-1-py3-none-any.whl"],
        [compiled.format(8, 311)],
        ["flash_attn-2.8.3+rocm7.14torch2.14triton-1-py3-none-any.whl"],
    ]
    for index in INDEXES:
        page = IndexPage.from_html((release / index / "index.html").read_bytes())
        assert (page.projects, page.repository_version) == (["einops", "flash-attn"], "1.0")


def test_our_aiter_and_the_flash_attn_without_kernels_are_in_their_own_indexes_alone() -> None:
    preview = a_row("rocm64torch2.9tritongit0123abc")
    ours = a_row(None, "amd_aiter-0.0.20260602-py3-none-any.whl", project="amd-aiter", version="0.0.20260602")
    fallback = a_row(None, "flash_attn-2.6.3+fallback-py3-none-any.whl", project="flash-attn", version="2.6.3+fallback")
    pages = render_index([FLASH_ATTN, EINOPS, preview, ours, fallback])
    with_aiter = [name for name in pages if name.endswith("/amd-aiter/index.html")]
    assert with_aiter == ["simple/rocm64/torch2.9/triton-preview/amd-aiter/index.html"]
    assert [name for name, page in pages.items() if b"+fallback" in page] == ["simple/fallback/flash-attn/index.html"]
    assert render_index([EINOPS]) == {}, "dependencies alone make no index"


def test_every_page_is_linked_from_the_page_above_it_and_links_are_relative(release: Path) -> None:
    """So a release can be moved."""
    pages = [page.parent for page in release.rglob("simple/*/**/index.html")]
    assert len(pages) == 17
    for folder in pages:
        assert folder in [path_of(link.url) for link in links_on(folder.parent / "index.html")]
    read = [RepositoryPage.from_html(page.read_bytes()) for page in release.rglob("index.html")]
    addresses = [urlsplit(link.url) for page in read for link in page.links]
    assert len(addresses) > len(CELLS)
    assert not [address for address in addresses if address.scheme or address.netloc or address.path.startswith("/")]


def test_the_same_rows_give_the_same_pages_whatever_their_order() -> None:
    rows = [a_row("rocm64torch2.9"), a_row("rocm7.14torch2.14"), a_row("rocm64torch2.9triton"), EINOPS]
    first, *others = (render_index(order) for order in permutations(rows))
    assert all(list(other.items()) == list(first.items()) for other in others)


def test_pages_that_nothing_leads_to_any_more_are_removed_and_nothing_else(tmp_path: Path) -> None:
    write_pages(tmp_path, render_index([FLASH_ATTN, a_row("rocm7.14torch2.14"), EINOPS]))
    (tmp_path / "simple/robots.txt").write_text("kept")
    kept = {"simple/robots.txt": b"kept"}
    write_pages(tmp_path, render_index([FLASH_ATTN]))
    assert content_of(tmp_path) == {**render_index([FLASH_ATTN]), **kept}
    assert not (tmp_path / "simple/rocm7.14").exists()
    write_pages(tmp_path, {})
    assert content_of(tmp_path) == kept
