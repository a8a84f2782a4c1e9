"""The pages of the index, read by pypi-simple as pip and uv read them, and the install lines that a run prints."""

from __future__ import annotations

import shlex
from itertools import permutations
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pypi_simple import DistributionPackage, IndexPage, ProjectPage, RepositoryPage

from release_factory import content_of, flash_attn_wheel, links_on, make_release, path_of, plain_row, stub_wheel
from wheelfactory.build.environments import cpu_torch_requirement
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.label import Label, index_path
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.directory import write_pages
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.index import (
    directory_install_lines,
    file_install_line,
    github_pages_url,
    install_templates,
    pick_smoke_test_wheel,
    render_index,
    smoke_test_line,
)

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


TORCH = cpu_torch_requirement().removeprefix("torch==").partition("+")[0]
"""The torch whose CPU build replaces ROCm's."""


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(MATRIX)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--extra-index-url", "https://cpu.example")
    monkeypatch.setattr("wheelfactory.site.index.cpu_torch_options", lambda: options)


def row_of(cell: Cell, yanked: str | None = None) -> WheelRow:
    """The row of the wheel of a cell."""
    label = str(Label.from_cell(cell))
    named = {"project": "flash-attn", "version": f"{cell.flash_attn}+{label}", "cell": cell.id, "label": label}
    return plain_row(f"flash_attn-{cell.flash_attn}+{label}-py3-none-any.whl", yanked=yanked, **named)


def triton(flash_attn: str, rocm: str, torch: str = TORCH) -> Cell:
    """A cell that can be tried anywhere, if torch is that which can be had for the CPU."""
    return Cell.from_axes(flash_attn, "3", torch, rocm, Backend.TRITON)


ROW = row_of(triton("2.8.3", "7.2"))
LABEL = f"rocm72torch{TORCH.rpartition('.')[0]}triton"


def test_the_install_line_names_the_index_of_the_wheel_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = directory_install_lines([ROW], Path("/wheelhouse"))[0]
    index = f"file:///wheelhouse/simple/rocm72/torch{TORCH.rpartition('.')[0]}/triton/"
    assert line == f"pip install --index-url {index} flash-attn"
    for name in ("with blank", "a'b", 'a"b', "a$b", "a+b", "a%20b", "a#b", "été"):
        folder = tmp_path / name
        words = shlex.split(directory_install_lines([ROW], folder)[0])
        (index,) = (word for word in words if word.startswith("file://"))
        assert index.startswith(f"{folder.as_uri()}/simple/"), "it survives the shell"
    monkeypatch.chdir(tmp_path)
    assert f"{tmp_path.as_uri()}/wheelhouse/simple/" in directory_install_lines([ROW], Path("wheelhouse"))[0]


def test_the_trial_line_pins_the_wheel_its_triton_and_the_cpu_torch(matrix: Matrix) -> None:
    words = shlex.split(smoke_test_line(ROW, Path("/wheel house"), matrix))
    assert words == [
        *("pip", "install", "--extra-index-url", "https://cpu.example", "--find-links", "/wheel house/wheels"),
        cpu_torch_requirement(),
        f"triton=={matrix.torch[TORCH].triton}",
        f"flash-attn==2.8.3+{LABEL}",
    ]


def test_of_several_wheels_the_newest_is_picked(matrix: Matrix) -> None:
    releases, rocms = list(matrix.flash_attn), list(matrix.rocm)
    rows = [row_of(triton(release, rocm)) for release in reversed(releases) for rocm in reversed(rocms)]
    picked = pick_smoke_test_wheel(rows, matrix)
    assert picked
    assert picked.cell == triton(releases[0], rocms[0]).id


CK = Cell.from_axes("2.8.3", "3.11", TORCH, "7.2", Backend.CK)


def test_unsuitable_wheels_are_not_picked(matrix: Matrix) -> None:
    cases: list[WheelRow] = [
        row_of(triton("2.8.3", "7.2"), yanked="broken"),  # yanked
        row_of(CK),  # compiled
        row_of(triton("2.8.3", "7.2", torch="2.5.1")),  # another torch
        row_of(triton("1.0.0", "7.2")),  # flash-attn that the matrix has no more
        row_of(triton("2.8.3", "5.7")),  # ROCm that the matrix has no more
        ROW.model_copy(update={"cell": None, "label": None}),  # dependency
    ]
    for row in cases:
        assert pick_smoke_test_wheel([row], matrix) is None
        assert pick_smoke_test_wheel([row, ROW], matrix) == ROW


def test_pages_serve_a_repository_below_its_owner_but_for_the_owners_own_site() -> None:
    assert github_pages_url("Someone/wheels") == "https://someone.github.io/wheels/"
    assert github_pages_url("Someone/Someone.github.io") == "https://someone.github.io/"


# -- a preview, whose kernels are in aiter

PREVIEW = row_of(Cell.parse("fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-py3-triton")).model_copy(
    update={"filename": "flash_attn-2.8.4+rocm72torch2.13tritongit4a948e9-py3-none-any.whl"}
)
KERNELS = PREVIEW.model_copy(
    update={"project": "amd-aiter", "cell": None, "label": None, "filename": "amd_aiter-0.0.20260602-py3-none-any.whl"}
)


def test_the_line_of_one_file_offers_the_kernels_that_it_requires_and_names_only_their_project(matrix: Matrix) -> None:
    """An address would replace an installed aiter of AMD's."""
    addresses = {"url": f"https://wheels.example/{KERNELS.filename}"}
    named = KERNELS.model_copy(update=addresses)
    offered = "pip install --no-deps --no-index --find-links {} amd-aiter"

    kernels, own = file_install_line(PREVIEW, matrix, [PREVIEW, KERNELS]).split(" && ")
    assert kernels == offered.format(f"./{KERNELS.filename}")
    assert shlex.split(own)[-2:] == ["einops", f"./{PREVIEW.filename}"]

    with_address = file_install_line(PREVIEW, matrix, [named])
    assert with_address.startswith(offered.format(f"'{addresses['url']}#sha256={KERNELS.sha256}'"))
    assert "aiter" not in file_install_line(ROW, matrix, [ROW, KERNELS])


def test_the_second_project_for_uv_takes_the_kernels_from_the_index_of_the_wheel() -> None:
    plain, with_kernels = install_templates()["pyproject.toml"]
    assert set(with_kernels.splitlines()) - set(plain.splitlines()) == {
        'dependencies = ["flash-attn=={version}", "torch=={torch}", "{triton}", "amd-aiter"]',
        'amd-aiter = { index = "flash-attn-rocm" }',
    }
