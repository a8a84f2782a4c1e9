"""A product is an entry in three tables: every stage builds, verifies, publishes and lists it by these."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiter_factory import PREVIEW
from release_factory import passed_gates
from wheel_factory import TRITON, finished_wheel, make_wheel, metadata_text, small_machine
from wheelfactory.build import products
from wheelfactory.build.products import PinnedProject, build_wheel, pin_product
from wheelfactory.core.cell import OFFERED_PRODUCTS, PRODUCTS, Product, products_beside
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline.jobs import CellJob, batch_matrix
from wheelfactory.release.additions import as_addition, read_additions
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.transaction import publish
from wheelfactory.site.index import render_index
from wheelfactory.site.site import Site
from wheelfactory.verify.contents import expected_from_plain
from wheelfactory.verify.gates import PRODUCT_GATES, product_gates, verify

NAME = "new-kernels"
PINNED = PinnedProject(
    NAME,
    "1.0",
    "commit:1",
    lambda scratch: make_wheel(scratch, name="new_kernels", version="1.0", metadata=metadata_text("1.0", name=NAME)),
    "new_kernels-1.0-py3-none-any.whl",
)


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A machine of a factory with one more product, which the wheels of one commit require."""
    monkeypatch.setitem(PRODUCTS, NAME, Product(NAME, lambda _, commit: commit == PREVIEW.commit, "that commit"))
    monkeypatch.setitem(products._PINS, NAME, lambda _context: PINNED)
    monkeypatch.setitem(PRODUCT_GATES, NAME, product_gates(expected_from_plain, range(10**6)))
    return small_machine(tmp_path / "cache")


def test_every_table_has_every_product() -> None:
    assert list(PRODUCTS) == list(products._PINS) == list(PRODUCT_GATES)


def test_a_release_has_the_products_that_its_cells_require_and_the_offered_ones(given: Context) -> None:
    assert products_beside([]) == ()
    assert products_beside([TRITON]) == OFFERED_PRODUCTS == ("flash-attention-amd", "flash-attn-fallback")
    assert products_beside([TRITON, PREVIEW]) == (*OFFERED_PRODUCTS, "amd-aiter", NAME)


def test_its_wheel_passes_the_gates_and_is_accepted_from_a_release_directory(given: Context, tmp_path: Path) -> None:
    wheel = build_wheel(pin_product(NAME, given), tmp_path, given.cache)
    addition = as_addition(wheel, verify(wheel, context=given))
    publish(DirectoryPublisher(tmp_path / "release"), [addition])
    assert [gate.gate for gate in addition[0].gates] == ["archive", "identity", "record", "contents"]
    assert [row.project for row, _ in read_additions(tmp_path / "release", expected={}, context=given)] == [NAME]


def test_jobs_and_indexes_have_it_where_it_is_required(given: Context, tmp_path: Path) -> None:
    jobs = [CellJob(id=cell.id, batch=cell.id) for cell in (TRITON, PREVIEW)]
    batches = {entry["batch"]: entry["cells"].split() for entry in json.loads(batch_matrix(jobs))["include"]}
    assert (NAME in batches[TRITON.id], NAME in batches[PREVIEW.id]) == (False, True)

    wheel = build_wheel(pin_product(NAME, given), tmp_path, given.cache)
    own, _ = as_addition(wheel, verify(wheel, context=given))
    row, _ = as_addition(finished_wheel(tmp_path, TRITON), passed_gates(TRITON.id))
    update = {"label": "rocm72torch2.13git4a948e9", "version": "2.8.4", "filename": "flash_attn-2.8.4.whl"}
    pages = render_index([own, row, row.model_copy(update=update)])
    found = [path for path in pages if path.endswith(f"{NAME}/index.html")]
    assert found == [f"simple/rocm72/torch2.13/ck-preview/{NAME}/index.html"]
    assert f"; {NAME} only those of that commit." in Site(given.matrix, [own, row]).packages_page()
