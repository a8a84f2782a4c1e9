"""The search page in a real browser: Debian's headless Chromium, on loopback, with every error recorded.

A page that logs an error, throws, or asks another host for anything fails its test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from loopback import served
from npm_tools import npm_package
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.site import Site

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
"""The browser without a window, which takes half the time of `chromium --headless` for the same pages."""

ELSEWHERE = "wheels.example"
"""A name that means this machine too. Chromium trusts plain http on loopback, and not on a host of another name."""

AXE_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")


_LINKED = (
    "doctor.py",
    "packages.html",
    "manifest.jsonl",
    "simple/index.html",
    "docs/index.html",
    "docs/explanation/backends.html",
    "docs/how-to/report-your-gpu.html",
)


def write_page(folder: Path, matrix: Matrix, rows: list[WheelRow], *, docs: bool = True) -> Path:
    """Write the search page of these rows below `folder`; missing link targets become empty files."""
    for name, data in Site(matrix, rows, has_docs=docs).search_page_files().items():
        write(folder / name, data)
    for name in _LINKED:
        if not (folder / name).exists():
            write(folder / name, b"")
    return folder


def write(path: Path, data: bytes) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def choose(page: Page, axis: str, value: str) -> None:
    """Click an option of a filter."""
    label = page.locator(f'label[for="{axis}-{value}"]')
    unfold(page)
    if not label.is_visible():  # options without wheels are folded
        page.locator(f'fieldset[data-axis="{axis}"] .unfold').click()
    label.click()


def unfold(page: Page) -> None:
    """Open the filters."""
    if not page.locator("#refine").evaluate("details => details.open"):
        page.locator("#refine > summary").click()


def count(page: Page) -> int:
    """The number of wheels that the page reports."""
    return int(re.sub(r"\D", "", page.locator("#count").inner_text()))


def standing(page: Page, axis: str, value: str) -> str:
    """The text of an option's label for screen readers; also of an option that is folded."""
    found = page.locator(f'fieldset[data-axis="{axis}"] label').evaluate_all(
        """(labels, value) => labels.filter((label) => label.firstChild.textContent === value)
            .map((label) => label.querySelector('.hidden').textContent.slice(1, -1))""",
        value,
    )
    return str(*found)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback; yields its address."""
    with served(folder) as found:
        yield f"{found.url}/"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that reaches no network. Without one the tests are skipped, or fail if BROWSER is ``required``."""
    need_chromium()
    no_gpu = ("--disable-gpu", "--disable-software-rasterizer")  # a screenshot is drawn without both
    arguments = [
        "--no-sandbox",
        *no_gpu,
        f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def need_chromium() -> None:
    """Skip or fail the test, as `chromium` does, without a browser."""
    if not CHROMIUM.exists():
        (pytest.fail if os.environ.get("BROWSER") == "required" else pytest.skip)(f"needs {CHROMIUM}")


class Visitor:
    """A browser window that records every error and warning."""

    def __init__(self, browser: Browser, site: str, **window: Any) -> None:
        self.site = site
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(**window)
        self.context.set_default_timeout(10_000)
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self._note(message.type in ("error", "warning"), message.text))
        self.page.on("pageerror", lambda error: self._note(True, str(error)))
        self.page.on("request", lambda request: self._note(not self._is_own(request.url), f"asked for {request.url}"))

    def _note(self, bad: bool, text: str) -> None:
        if bad:
            self.complaints.append(text)

    def _is_own(self, url: str) -> bool:
        return url.startswith("data:") or urlsplit(url)[:2] == urlsplit(self.site)[:2]

    def open(self, query: str = "") -> Page:
        """Open the page with the choices in `query`."""
        self.page.goto(f"{self.site}index.html{query}")
        return self.page

    def violations(self, rules: Sequence[str] = ()) -> list[str]:
        """Return the violations that axe finds in the current page, for these rules or all rules of `AXE_TAGS`."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate((npm_package("axe-core") / "axe.min.js").read_text())
        only = {"type": "rule", "values": [*rules]} if rules else {"type": "tag", "values": [*AXE_TAGS]}
        found = self.page.evaluate("only => axe.run({runOnly: only, resultTypes: ['violations']})", only)
        return [f"{one['id']}: {node['html']}" for one in found["violations"] for node in one["nodes"]]

    def close(self) -> None:
        """Close the window; fails if an error or warning was recorded."""
        self.context.close()
        assert self.complaints == []


Visit = Callable[..., Visitor]
"""Makes a visitor of an address, with a browser window as playwright describes one."""
