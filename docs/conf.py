"""The documentation as a site: the Markdown files of this folder, by Sphinx, MyST-Parser and Furo.

    ./factory docs DIR

The pages are plain Markdown, so that GitHub shows them as well. What only the site needs is made here: a table of
contents from the links of each index.md, and for links to files that are no page the address of that file on GitHub.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "wheelfactory"
extensions = ["myst_parser"]
exclude_patterns = ["_static", "_templates"]
templates_path = ["_templates"]
nitpicky = True

myst_heading_anchors = 4

html_theme = "furo"
html_title = "wheelfactory"
html_favicon = "icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {  # the colours of the search page (search.css); "fade" is that of the shadows in site.css
    "light_css_variables": {
        "color-brand-primary": "#0b5c66",
        "color-brand-content": "#0b5c66",
        "color-brand-visited": "#3b3f8f",
        "fade": "rgb(0 0 0 / 28%)",
    },
    "dark_css_variables": {
        "color-brand-primary": "#74cdd6",
        "color-brand-content": "#74cdd6",
        "color-brand-visited": "#b9bdf5",
        "fade": "rgb(255 255 255 / 38%)",
    },
}
html_copy_source = False
html_use_index = False
html_show_sourcelink = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "find-a-wheel.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

# what the theme leaves out for screen readers and keyboards
_ACCESSIBLE = {
    '<aside class="sidebar-drawer">': '<aside aria-label="Pages" class="sidebar-drawer">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',  # it scrolls
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div id="search-results">': '<h1>Search</h1>\n<div id="search-results">',
}
_LINK = re.compile(r"\]\(([^)\s#]+\.md)(?:#[^)\s]*)?\)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _add_contents)
    app.connect("doctree-read", _lead_to_the_repository, priority=100)  # before files that are linked are collected
    app.connect("build-finished", _make_accessible)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_contents(_app: Sphinx, name: str, source: list[str]) -> None:
    if Path(name).name == "index":
        folder = (DOCS / name).parent
        entries = "\n".join(_contents(folder, source[0]))
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def _contents(folder: Path, text: str) -> Iterator[str]:
    """The pages of a folder and the indexes of its folders: what its index links, in that order, then the rest."""
    pages = [*sorted(folder.glob("*.md")), *sorted(folder.glob("*/index.md"))]
    there = {path.relative_to(folder).as_posix() for path in pages} - {"index.md"}
    linked = [link for link in dict.fromkeys(_LINK.findall(text)) if link in there]
    yield from (link.removesuffix(".md") for link in (*linked, *sorted(there - set(linked))))


def _lead_to_the_repository(_app: Sphinx, page: nodes.document) -> None:
    """Links to a file or folder beside docs/ lead to GitHub where its address is known, else to a copy of the file."""
    here = Path(page["source"]).parent
    for node in [*page.findall(addnodes.download_reference), *page.findall(addnodes.pending_xref)]:
        suffix = ".md" if node.get("refdomain") == "doc" else ""  # MyST takes each Markdown file for a page
        target = (here / f"{node['reftarget']}{suffix}").resolve()
        if not target.is_relative_to(ROOT) or target.is_relative_to(DOCS):
            continue
        address = _address(target)
        if address:
            node.replace_self(nodes.reference("", "", *node.children, refuri=address))
        elif target.is_dir():
            node.replace_self(node.children)
        else:
            copied = {"reftarget": os.path.relpath(target, here), "refdoc": node["refdoc"]}
            node.replace_self(addnodes.download_reference("", "", *node.children, **copied))


def _make_accessible(app: Sphinx, error: Exception | None) -> None:
    for page in () if error else Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for before, after in _ACCESSIBLE.items():
            text = text.replace(before, after)
        page.write_text(text, encoding="utf-8")


def _address(path: Path) -> str:
    """Where a workflow's repository shows a path; empty if this is not run by a workflow."""
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    if not repository:
        return ""
    server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
    kind = "tree" if path.is_dir() else "blob"
    return f"{server}/{repository}/{kind}/{os.environ.get('GITHUB_SHA') or 'HEAD'}/{path.relative_to(ROOT)}"
