"""Text on stdout: coloured and as wide as the terminal, plain in a pipe or a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from wheelfactory.core.wrap import wrap_line

THEME = Theme(
    {
        "good": "color(28)",
        "here": "color(30)",
        "bad": "color(160)",
        "bold good": "bold color(28)",
        "bold bad": "bold color(160)",
        "bar.back": "color(244)",
        "bar.complete": "color(30)",
        "bar.finished": "color(28)",
        "bar.pulse": "color(30)",
        "progress.download": "default",
        "progress.elapsed": "default",
        "progress.remaining": "color(30)",
    }
)
"""Styles that are readable on a light and on a dark terminal; rich's own bars have yellow times, unreadable on white.

From the palette of 256 colours: a terminal replaces the first 16 by its own, and may show bold green as bright green.
"""


@dataclass(frozen=True)
class TextColumn:
    """A column of a table."""

    title: str
    is_number: bool = False
    """Whether it is aligned to the right."""
    style: str = ""
    """Rich style of its cells on a terminal, such as ``good``; a zero has none."""


@dataclass(frozen=True)
class TextTable:
    """A table with one cell per column in each row."""

    columns: tuple[TextColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...] = ()
    """The last row: the sum of all others; empty for a table without one."""


def stdout_console() -> Console:
    """The console of stdout, as it is at the time of printing. Rich reads NO_COLOR and TERM."""
    return Console(highlight=False, markup=False, emoji=False, theme=THEME)


def stderr_console() -> Console:
    """The console of stderr, as it is at the time of printing."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True, theme=THEME)


def is_interactive(console: Console) -> bool:
    """Whether a console is a terminal that can show colours, boxes and bars."""
    return console.is_terminal and not console.is_dumb_terminal


def table_lines(table: TextTable, console: Console | None = None) -> list[str]:
    """Render a table: with rules and colours on a terminal, else as aligned text that is never wrapped."""
    console = console or stdout_console()
    return render_lines(rich_table(table), console) if is_interactive(console) else list(_plain_lines(table))


def rich_table(table: TextTable) -> Table:
    """The table for a terminal."""
    shown = Table(
        box=box.SIMPLE_HEAD,
        show_footer=bool(table.total),
        pad_edge=False,
        header_style="bold",
        footer_style="bold",
    )
    for column, total in zip(table.columns, table.total or [""] * len(table.columns), strict=True):
        justify: JustifyMethod = "right" if column.is_number else "left"
        shown.add_column(Text(column.title), Text(total), justify=justify, overflow="fold")
    for row in table.rows:
        cells = zip(row, table.columns, strict=True)
        shown.add_row(*(Text(cell, "" if cell == "0" else column.style) for cell, column in cells))
    return shown


def styled_lines(lines: Iterable[tuple[str, str]], console: Console) -> list[str]:
    """Apply the rich style of each line on a terminal; without one, return the lines only."""
    if not is_interactive(console):
        return [line for line, _ in lines]
    with console.capture() as capture:
        for line, style in lines:
            console.print(Text(line, style), soft_wrap=True)
    return capture.get().splitlines()


def render_lines(renderable: RenderableType, console: Console) -> list[str]:
    """Render for a console, without printing: the lines, with their colours."""
    # printing is left to the caller, because rich would end the program when a pipe closes
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def wrap_lines(lines: Iterable[str], console: Console | None = None) -> list[str]:
    """Wrap lines between words at the width of a terminal, with a hanging indent; unchanged without a terminal."""
    console = console or stdout_console()
    width = console.width if is_interactive(console) else None
    return [part for line in lines for part in wrap_line(line, width)]


def _plain_lines(table: TextTable) -> Iterable[str]:
    rows = [tuple(column.title for column in table.columns), *table.rows, *filter(None, [table.total])]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(_aligned(row, widths, table.columns)).rstrip()


def _aligned(row: Sequence[str], widths: Sequence[int], columns: Sequence[TextColumn]) -> Iterable[str]:
    for cell, width, column in zip(row, widths, columns, strict=True):
        yield cell.rjust(width) if column.is_number else cell.ljust(width)
