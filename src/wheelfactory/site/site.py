"""Render the site, a folder for any web server: index, search page, doctor.py and the pages that list every wheel.

The same rows give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.cell import FLASH_ATTN_FALLBACK, PRODUCTS
from wheelfactory.core.label import FALLBACK_INDEX, index_path
from wheelfactory.core.published import wheel_url
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.coverage import OWNER_STEP, OWNER_TITLE, page_runner_note
from wheelfactory.site.doctor_file import build_single_file, doctor_facts
from wheelfactory.site.index import index_install_line, newest_date, page_templates, render_index
from wheelfactory.site.markdown import code_block, code_span, escape, gpu_text, link, size_text, table
from wheelfactory.site.search_data import search_data
from wheelfactory.site.wheel_text import (
    axis_values,
    group_by_index,
    newest_first_key,
    pythons_text,
    status_notes,
    versions_text,
)

_PAGE = Path(__file__).parent / "page"

GENERATED = "<!-- Generated from the manifest by `wheelfactory index`. Do not edit: the next release overwrites it. -->"

# hex digits of a sha256 that are shown; the link has all of them, so that pip verifies the file
_SHORT = 12

_HEADER = ("version", "Python", "GPUs", "size", "glibc", "published", "sha256", "")


@dataclass(frozen=True)
class Site:
    """What the pages of a site are made from."""

    matrix: Matrix
    """Says which cells lack a runner, and which wheels are of an earlier build."""
    rows: Sequence[WheelRow]
    address: str = ""
    """Where the site is served: the URL above ``simple/`` and ``wheels/``.

    If it is empty, doctor.py reads the manifest in its own folder, links are relative to their page, and the list of
    wheels has no install commands. A row's own URL takes precedence.
    """
    has_docs: bool = False
    """Whether the site has ``docs/``."""

    def render(self) -> dict[str, bytes]:
        """Render every file of the site except the manifest, keyed by path, the index last."""
        return {
            **self.search_page_files(),
            "doctor.py": build_single_file(doctor_facts(self.matrix), self.address).encode(),
            "packages.md": self.packages_page().encode(),
            "packages.html": self.packages_html(),
            **render_index(self.rows),
        }

    def search_page_files(self) -> dict[str, bytes]:
        """The files of the search page by path: the static files, and the data."""
        # the data is a script: a page opened from disk may load scripts, but not JSON
        static = sorted(path for path in _PAGE.rglob("*") if path.suffix in (".css", ".html", ".js"))
        files = {path.relative_to(_PAGE).as_posix(): path.read_bytes() for path in static}
        return {**files, "search/data.js": _script(search_data(self.matrix, self.rows, docs=self.has_docs))}

    def packages_page(self) -> str:
        """Render the list of wheels as Markdown."""
        wheels = [row for row in self.rows if row.label]
        yanked = sum(row.yanked is not None for row in wheels)
        headline = count_text(len(wheels), "flash-attn wheel") + (f", {yanked} of them yanked." if yanked else ".")
        lines = [GENERATED, "", "# Packages", "", headline, ""]
        note = page_runner_note(self.matrix, self.rows)
        lines += [escape(note), ""] if note else []
        for title, about, command, members in self._groups():
            lines += [f"## {title}", ""]
            lines += [about, ""] if about else []
            lines += [*code_block([command]), ""] if command else []
            lines += [*table(_HEADER, ([*self._file(row)] for row in members)), ""]
        if archs := sorted({arch for row in self.rows for arch in row.offload_archs}):
            lines += ["## GPUs", "", *table(("arch", "GPUs"), ((escape(arch), gpu_text(arch)) for arch in archs)), ""]
        lines += [f"## {OWNER_TITLE}", "", escape(OWNER_STEP), ""] if note else []
        return "\n".join(lines)

    def packages_html(self) -> bytes:
        """Render the list of wheels as HTML, for people without JavaScript."""
        groups = []
        for title, about, command, members in self._groups():
            files = [(row, wheel_url(row.filename, row.url, self.address), self._about(row)) for row in members]
            groups.append((". ".join(filter(None, (title, about))), command, files))
        count = count_text(sum(row.label is not None for row in self.rows), "flash-attn wheel")
        note = page_runner_note(self.matrix, self.rows)
        about = " ".join(filter(None, (f"{count} for AMD GPUs.", note)))
        date = newest_date(self.rows) if self.rows else "none yet"
        template = page_templates().get_template("packages.html")
        given = {"title": "All wheels", "about": about, "groups": groups, "date": date}
        return template.render(given, owner_title=OWNER_TITLE, owner=OWNER_STEP if note else "").encode()

    def _groups(self) -> Iterator[tuple[str, str, str, Sequence[WheelRow]]]:
        """Yield the title, a text, the install command and the rows of each index, then those of the dependencies."""
        ordered = sorted(self.rows, key=newest_first_key)
        for key, members in group_by_index(ordered).items():
            title = "ROCm {}, torch {}, {}".format(*axis_values(members[0]))
            # pip accepts no relative URL
            yield title, "", index_install_line(key, self.address) if self.address else "", members
        if others := [row for row in ordered if not row.label]:
            yield "Dependencies", _where_listed(others), "", others

    def _about(self, row: WheelRow) -> str:
        archs = " ".join(row.offload_archs) or "any GPU"
        notes = "".join(f", {note}" for note in status_notes(row, self.matrix))
        return f"for {archs}, {size_text(row.size)}, {row.published:%Y-%m-%d}{notes}"

    def _file(self, row: WheelRow) -> Iterator[str]:
        """The cells of a row. The link ends in the full sha256, which pip and uv verify."""
        address = wheel_url(row.filename, row.url, self.address)
        yield escape(row.version) if row.label is None else versions_text([row])
        yield pythons_text([row])
        yield " ".join(map(escape, row.offload_archs)) or "any"
        yield size_text(row.size)
        yield escape(row.glibc or "any")
        yield f"{row.published:%Y-%m-%d}"
        yield code_span(row.sha256[:_SHORT])
        yanked = f" **yanked**: {escape(row.yanked)}" if row.yanked is not None else ""
        notes = "".join(f", {escape(mark)}" for mark in status_notes(row, self.matrix))
        yield link("wheel", f"{address}#sha256={row.sha256}") + notes + yanked


def _script(data: Mapping[str, Any]) -> bytes:
    """Render the data as a script."""
    # ASCII, so that a server's charset does not matter; the wheels need no quotes, and one line each is good for diffs
    write = json.JSONEncoder(separators=(",", ":")).encode
    wheels = f"`{data['wheels']}`"
    lines = [f"{write(key)}:{wheels if key == 'wheels' else write(value)}" for key, value in data.items()]
    return ("globalThis.wheelfactoryData = {\n" + ",\n".join(lines) + "\n};\n").encode("ascii")


def _where_listed(others: Iterable[WheelRow]) -> str:
    """Which indexes have the wheels without a label."""
    products = sorted({row.product for row in others if row.product in PRODUCTS})
    required = [PRODUCTS[name] for name in products if PRODUCTS[name].required_by]
    only = (f"; {product.name} only those of {product.listed_for}" for product in required)
    own = f"; the flash-attn of these only {index_path(FALLBACK_INDEX)}/" if FLASH_ATTN_FALLBACK in products else ""
    return f"Every index has these too{''.join(only)}{own}."
