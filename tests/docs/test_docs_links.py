"""Links, anchors and paths of every Markdown file. No other host is asked: of its addresses only the form counts."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest

from docs.pages import Page, pages, repository_files
from wheelfactory.core.checkout import ROOT

EVERY_PAGE = pytest.mark.parametrize("page", pages(), ids=lambda page: page.path)
SECTIONS = ("tutorial", "how-to", "reference", "explanation")

FOLDERS = frozenset(str(parent) for name in repository_files() for parent in PurePosixPath(name).parents)
OURS = re.compile(r"(?:src|tests|docs|scripts|docker|benchmarks|examples|\.github|\.ci)/[\w./*-]*")
"""A path from the root, and no placeholder in it."""
MODULE = re.compile(r"[a-z_]+(?:/[a-z_]+)+\.py")
"""A path within one of the folders."""
OWN_PLACES = re.compile(r"/(?:work|root|tmp/\w+|home/(?!you\b)\w+)/")
"""Where something lies on the machine of whoever wrote it."""


def broken(page: Page, link: str) -> str:
    """What is wrong with a link; empty if nothing is."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        plain = parts.scheme == "https" and re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", parts.netloc)
        return "" if plain else "not an https address"
    folder = (ROOT / page.path).parent
    target = (folder / unquote(parts.path)).resolve() if parts.path else ROOT / page.path
    if not target.is_relative_to(ROOT):
        return "leads out of the repository"
    name = target.relative_to(ROOT).as_posix()
    if name not in repository_files() | FOLDERS:
        return f"no file {name}"
    return "" if not parts.fragment or parts.fragment in Page(name).anchors else f"no heading of {name}"


@EVERY_PAGE
def test_every_link_leads_to_a_file_and_a_heading(page: Page) -> None:
    assert {link: why for link in page.links if (why := broken(page, link))} == {}


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("docs/nowhere.md", "no file docs/nowhere.md"),
        ("docs/reference/kernels.md#the-lock", "no heading of docs/reference/kernels.md"),
        ("../elsewhere.md", "leads out of the repository"),
        ("http://example.org/", "not an https address"),
        ("https://exam ple/", "not an https address"),
        ("docs/reference/kernels.md#the-key", ""),
        ("docs/reference", ""),
    ],
)
def test_a_link_is_told_by_what_is_wrong_with_it(link: str, why: str) -> None:
    assert broken(Page("README.md"), link) == why


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# `a_b`: why, *and* how?\n\n## Twice\n\n## Twice\n\n## 1.5 x - y\n")
    assert Page(str(path)).anchors == {"a_b-why-and-how", "twice", "twice-1", "15-x---y"}


@EVERY_PAGE
def test_every_path_of_the_repository_is_there(page: Page) -> None:
    named = {span for span in page.spans if OURS.fullmatch(span)}
    missing = {path for path in named if "*" not in path and path.rstrip("/") not in repository_files() | FOLDERS}
    missing |= {path for path in named if "*" in path and not any(ROOT.glob(path))}
    modules = {span for span in page.spans if MODULE.fullmatch(span)} - named
    missing |= {path for path in modules if not any(f"/{name}".endswith(f"/{path}") for name in repository_files())}
    assert missing == set()


@EVERY_PAGE
def test_no_page_names_a_place_on_one_machine(page: Page) -> None:
    assert OWN_PLACES.findall(page.text) == []


@EVERY_PAGE
def test_a_page_has_one_title_and_no_level_is_left_out(page: Page) -> None:
    levels = [level for level, _ in page.headings]
    assert levels[:1] == [1]
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


@pytest.mark.parametrize("section", SECTIONS)
def test_the_index_of_a_section_leads_to_each_of_its_pages(section: str) -> None:
    here = {Path(page.path).name for page in pages() if Path(page.path).parent == Path("docs", section)}
    linked = {urlsplit(link).path for link in Page(f"docs/{section}/index.md").links}
    assert here - {"index.md"} - linked == set()


@EVERY_PAGE
def test_github_shows_every_page_as_it_is_meant(page: Page) -> None:
    """Nothing that only MyST understands: directives, roles, targets, front matter."""
    assert [block.place for block in page.blocks if block.language.startswith("{")] == []
    assert not re.search(r"^:::|^\(.+\)=$|\{\w+\}`|\A---$", page.text, re.MULTILINE)
