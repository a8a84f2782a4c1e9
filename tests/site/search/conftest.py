"""A browser for each file, and visitors of a page made from the real matrix.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from search_page import Visit, Visitor, chromium, serving, write_page
from search_rows import example_rows
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    """The matrix.yaml of this repository."""
    return load_matrix(Path(__file__).parents[3] / "matrix.yaml")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page of `example_rows`."""
    folder = tmp_path_factory.mktemp("site")
    with serving(write_page(folder, matrix, example_rows(matrix))) as address:
        yield address


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Makes visitors, and fails the test if one of them met an error or a request to another host."""
    visitors: list[Visitor] = []

    def new(site: str, **window: object) -> Visitor:
        visitors.append(Visitor(browser, site, **window))
        return visitors[-1]

    yield new
    for visitor in visitors:
        visitor.close()
