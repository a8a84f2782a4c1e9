"""The documentation as a site: built without a warning, whole, the same each time, and asking no other host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser

from docs.pages import pages
from search_page import Visitor, chromium, serving
from shared_folder import make_once
from wheelfactory.core.files import ROOT

pytestmark = pytest.mark.slow

REPOSITORY = {"GITHUB_REPOSITORY": "OWNER/REPO", "GITHUB_SHA": "0123abc", "GITHUB_SERVER_URL": "https://github.com"}
NOWHERE = dict.fromkeys(REPOSITORY, "")


def build(folder: Path, environ: Mapping[str, str]) -> Path:
    """Build the site as ``./factory docs`` does."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--nitpicky", "-q"]
    site, own = folder / "docs", {**os.environ, **environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command += ["--doctree-dir", str(folder / "doctrees"), str(ROOT / "docs"), str(site)]
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as anybody builds it, who knows no address of the repository."""
    base = tmp_path_factory.getbasetemp()
    return make_once(base, "docs-site", lambda folder: build(folder, NOWHERE)) / "docs"


class _References(HTMLParser):
    """What a page of HTML leads to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element refers to."""
        given = {name: value for name, value in attrs if value is not None}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("link", "script", "img", "iframe", "source"):
            self.loaded += [given[name] for name in ("src", "href", "srcset") if name in given]


def read(page: Path) -> _References:
    found = _References()
    found.feed(page.read_text())
    return found


def html_pages(site: Path) -> Iterator[Path]:
    return site.rglob("*.html")


def test_every_page_is_in_it(site: Path) -> None:
    wanted = {
        Path(page.path).relative_to("docs").with_suffix(".html") for page in pages() if page.path.startswith("docs/")
    }
    assert wanted <= {page.relative_to(site) for page in html_pages(site)}


def test_every_link_within_it_leads_to_a_place_that_is_there(site: Path) -> None:
    known = {page.resolve(): read(page) for page in html_pages(site)}
    search_page = (site.parent / "index.html").resolve()
    lost = set()
    for page, found in known.items():
        for link in (*found.links, *found.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target == search_page:
                continue
            anchor_is_lost = parts.fragment and target in known and parts.fragment not in known[target].ids
            if not target.is_file() or (anchor_is_lost and link != "#"):
                lost.add(f"{page.relative_to(site)}: {link}")
    assert lost == set()


def test_every_page_leads_back_to_the_search_page(site: Path) -> None:
    above = {page: os.path.relpath(site.parent / "index.html", page.parent) for page in html_pages(site)}
    assert [page.name for page, link in above.items() if link not in read(page).links] == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    loaded = {link for page in html_pages(site) for link in read(page).loaded}
    loaded |= {
        link.strip("'\" ")
        for style in site.rglob("*.css")
        for link in re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", style.read_text())
        for link in link
    }
    assert {link for link in loaded if urlsplit(link).netloc} == set()


def test_it_is_the_same_each_time(site: Path, tmp_path: Path) -> None:
    again = build(tmp_path, NOWHERE)
    first, second = (
        {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (site, again)
    )
    assert first.keys() == second.keys()
    assert [name for name, data in first.items() if second[name] != data] == []


def test_files_that_are_no_page_are_shown_by_the_repository_or_come_along(site: Path, tmp_path: Path) -> None:
    page = "how-to/add-a-rocm-version.html"
    (copied,) = {link for link in read(site / page).links if link.endswith("matrix.yaml")}
    assert ((site / page).parent / copied).resolve().read_bytes() == (ROOT / "matrix.yaml").read_bytes()
    known = build(tmp_path, REPOSITORY)
    assert "https://github.com/OWNER/REPO/blob/0123abc/matrix.yaml" in read(known / page).links
    assert not list(known.glob("_downloads/*/matrix.yaml"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_finds_a_page_by_a_word_and_meets_no_other_host(site: Path, browser: Browser, scheme: str) -> None:
    with serving(site.parent) as address:
        visitor = Visitor(browser, address, color_scheme=scheme)
        page = visitor.page
        page.goto(f"{address}docs/index.html")
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 384) is (scheme == "dark")
        page.get_by_placeholder("Search").fill("flocks")
        page.keyboard.press("Enter")
        page.locator("#search-results a", has_text="Design decisions and their reasons").first.click()
        assert page.url.startswith(f"{address}docs/explanation/decisions.html")
        visitor.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_wrong(site: Path, browser: Browser, width: int, scheme: str) -> None:
    with serving(site) as address:
        visitor = Visitor(browser, address, viewport={"width": width, "height": 900}, color_scheme=scheme)
        for name in ("index", "how-to/use-in-a-project", "explanation/upstream-faults", "reference/fallback", "search"):
            visitor.page.goto(f"{address}{name}.html")
            assert visitor.violations() == [], name
        visitor.close()


NARROW = {"width": 390, "height": 844}
"""A phone."""


def test_on_a_phone_no_page_is_wider_than_the_screen(site: Path, browser: Browser) -> None:
    """Tables and code scroll by themselves."""
    wide = {}
    with serving(site.parent) as address:
        visitor = Visitor(browser, address, viewport=NARROW)
        for path in html_pages(site):
            name = path.relative_to(site.parent).as_posix()
            visitor.page.goto(f"{address}{name}")
            width = visitor.page.evaluate("document.documentElement.scrollWidth")
            if width > NARROW["width"]:
                wide[name] = width
        visitor.close()
    assert wide == {}
