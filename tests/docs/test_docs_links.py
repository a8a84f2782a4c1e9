"""Links, anchors, paths and lengths of every Markdown file. Addresses of other hosts are held to a form only."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest

from docs.pages import Page, pages, repository_files
from wheelfactory.core.files import ROOT

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


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    links = {(page, link) for page in pages() for link in page.links}
    assert {(page.path, link): why for page, link in links if (why := broken(page, link))} == {}


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


def missing_paths(page: Page) -> set[str]:
    """The paths that a page names and the repository lacks."""
    named = {span for span in page.spans if OURS.fullmatch(span)}
    missing = {path for path in named if "*" not in path and path.rstrip("/") not in repository_files() | FOLDERS}
    missing |= {path for path in named if "*" in path and not any(ROOT.glob(path))}
    modules = {span for span in page.spans if MODULE.fullmatch(span)} - named
    missing |= {path for path in modules if not any(f"/{name}".endswith(f"/{path}") for name in repository_files())}
    return missing


def test_every_path_that_a_page_names_is_in_the_repository() -> None:
    assert {page.path: missing for page in pages() if (missing := missing_paths(page))} == {}


def test_architecture_names_only_modules_that_exist() -> None:
    """Each paragraph of "The folders" begins with its folder, and names modules without it."""
    rooms = re.findall(r"^\*\*(\w+)\*\* (.*?)\n\n", Page("docs/architecture.md").text, re.MULTILINE | re.DOTALL)
    assert len(rooms) == 14
    named = {(room, word) for room, text in rooms for word in re.findall(r"`([a-z_]+)`", text)}
    package = ROOT / "src/wheelfactory"
    assert {(room, word) for room, word in named if not (package / room / f"{word}.py").is_file()} == set()


def test_no_page_names_a_place_on_one_machine() -> None:
    assert {page.path: found for page in pages() if (found := OWN_PLACES.findall(page.text))} == {}


def test_a_page_has_one_title_and_skips_no_level() -> None:
    for page in pages():
        levels = [level for level, _ in page.headings]
        assert levels[:1] == [1], page.path
        assert levels.count(1) == 1, page.path
        assert all(below <= above + 1 for above, below in pairwise(levels)), page.path


def test_the_index_of_a_section_links_each_of_its_pages() -> None:
    for section in SECTIONS:
        here = {Path(page.path).name for page in pages() if Path(page.path).parent == Path("docs", section)}
        linked = {urlsplit(link).path for link in Page(f"docs/{section}/index.md").links}
        assert here - {"index.md"} - linked == set(), section


def test_no_page_needs_more_than_githubs_markdown() -> None:
    """No syntax that only MyST understands: directives, roles, targets, front matter."""
    myst = re.compile(r"^:::|^\(.+\)=$|\{\w+\}`|\A---$", re.MULTILINE)
    assert [page.path for page in pages() if myst.search(page.text)] == []
    assert [block.place for page in pages() for block in page.blocks if block.language.startswith("{")] == []


WORDS, LINES = 2 * 350, 2 * 55

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_WORD = re.compile(r"\w")


def screens(text: str) -> float:
    """Return the length of a page in screens, without its marks."""
    shown = _COMMENT.sub("", text)
    words = sum(bool(_WORD.search(word)) for word in shown.split())
    return 2 * max(words / WORDS, len(shown.strip().splitlines()) / LINES)


def test_a_page_is_at_most_two_screens() -> None:
    lengths = {page.path: screens(page.text) for page in pages() if page.path.startswith("docs/")}
    assert {path: length for path, length in lengths.items() if length > 2} == {}


def test_marks_and_lines_of_tables_are_no_words() -> None:
    assert screens("<!-- page needs:\nwheelhouse -->\n" + "word - | --- |\n" * 10) == 2 * 10 / LINES
    assert screens("word " * 700) == 2
    assert screens(Page("docs/index.md").text) < 2


PAGE = Page("docs/explanation/measured-on-a-gpu.md")


def test_every_archived_report_is_linked_and_is_of_a_gpu_that_the_page_names() -> None:
    reports = {path.name: json.loads(path.read_bytes()) for path in (ROOT / "docs/measured").iterdir()}
    assert set(re.findall(r"\(../measured/([^)]+)\)", PAGE.text)) == reports.keys()
    devices = {report["hardware"]["device"] for report in reports.values()}
    assert all(device in PAGE.text for device in devices)
    assert not any("AMD" in device for device in devices)
    assert not re.search(r"verified on (gfx|AMD)", PAGE.text)
