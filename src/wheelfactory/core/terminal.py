"""Text on stdout: coloured and as wide as the terminal, plain in a pipe or a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, JustifyMethod, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from wheelfactory.core.wrap import as_printable, wrap_line

THEME = Theme(
    {
        **dict.fromkeys(("good", "bar.finished"), "color(28)"),
        **dict.fromkeys(("here", "bar.complete", "bar.pulse", "progress.remaining"), "color(30)"),
        **dict.fromkeys(("bar.back", "markdown.table.border"), "color(244)"),
        **dict.fromkeys(("progress.download", "progress.elapsed"), "default"),
        "bad": "color(160)",
        "bold good": "bold color(28)",
        "bold bad": "bold color(160)",
        "markdown.table.header": "bold",
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
    key_columns: int = 1
    """How many of the first columns name a row; if a terminal is too narrow for all columns, each part has these."""


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
    """Render a table: with rules and colours on a terminal, else as aligned text that is never wrapped.

    A table that is too wide for the terminal is split into several with some of its columns.
    """
    console = console or stdout_console()
    printable = [tuple(map(as_printable, row)) for row in table.rows]
    table = replace(table, rows=tuple(printable), total=tuple(map(as_printable, table.total)))
    if not is_interactive(console):
        return list(_plain_lines(table))
    return [line for part in _fitting(table, console) for line in render_lines(part, console)]


def _fitting(table: TextTable, console: Console) -> Iterator[Table]:
    """Yield the table, or if it is too wide several that fit a console, in the order of the columns."""
    whole = rich_table(table)
    if _width(whole, console) <= console.width:
        yield whole
        return
    keys = tuple(range(table.key_columns))
    shown = keys
    for column in range(table.key_columns, len(table.columns)):
        if shown != keys and _width(rich_table(_select(table, (*shown, column)), narrow=True), console) > console.width:
            yield rich_table(_select(table, shown), narrow=True)
            shown = keys
        shown = (*shown, column)
    yield rich_table(_select(table, shown), narrow=True)


def _width(table: Table, console: Console) -> int:
    """The width of a table on a terminal without an end."""
    return Measurement.get(console, console.options.update(width=10_000), table).maximum


def _select(table: TextTable, shown: Sequence[int]) -> TextTable:
    """A table of some columns."""
    columns = tuple(table.columns[column] for column in shown)
    rows = tuple(tuple(row[column] for column in shown) for row in table.rows)
    total = tuple(table.total[column] for column in shown) if table.total else ()
    return replace(table, columns=columns, rows=rows, total=total)


def rich_table(table: TextTable, *, narrow: bool = False) -> Table:
    """The table for a terminal; with `narrow`, the titles are wrapped between words."""
    shown = Table(
        box=box.SIMPLE_HEAD, show_footer=bool(table.total), pad_edge=False, header_style="bold", footer_style="bold"
    )
    for place, column in enumerate(table.columns):
        justify: JustifyMethod = "right" if column.is_number else "left"
        cells = [*(row[place] for row in table.rows), *(table.total[place : place + 1])]
        width = max(map(len, (*column.title.split(), *cells))) if narrow else None
        total = Text("".join(table.total[place : place + 1]))
        shown.add_column(Text(column.title), total, justify=justify, overflow="fold", width=width)
    for row in table.rows:
        styled = zip(row, table.columns, strict=True)
        shown.add_row(*(Text(cell, "" if cell == "0" else column.style) for cell, column in styled))
    return shown


def markdown_lines(lines: Sequence[str], console: Console | None = None) -> list[str]:
    """Render Markdown for a terminal, with drawn tables within its width; unchanged without a terminal."""
    console = console or stdout_console()
    lines = list(map(as_printable, lines))
    if not is_interactive(console):
        return lines
    from rich.markdown import Markdown  # late: with its parser, a third of the start of most commands

    return render_lines(Markdown("\n".join(lines)), console)


def styled_lines(lines: Iterable[tuple[str, str]], console: Console) -> list[str]:
    """Apply the rich style of each line on a terminal; without one, return the lines only."""
    if not is_interactive(console):
        return [as_printable(line) for line, _ in lines]
    with console.capture() as capture:
        for line, style in lines:
            console.print(Text(as_printable(line), style), soft_wrap=True)
    return capture.get().splitlines()


def render_lines(renderable: RenderableType, console: Console) -> list[str]:
    """Render for a console, without printing: the lines, with their colours."""
    # printing is left to the caller, because rich would end the program when a pipe closes
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def wrap_lines(parts: Iterable[str | TextTable], console: Console | None = None) -> list[str]:
    """Render lines and tables: lines are wrapped between words at the width of a terminal, with a hanging indent."""
    console = console or stdout_console()
    width = console.width if is_interactive(console) else None
    lines = []
    for part in parts:
        lines += wrap_line(as_printable(part), width) if isinstance(part, str) else table_lines(part, console)
    return lines


def _plain_lines(table: TextTable) -> Iterable[str]:
    rows = [tuple(column.title for column in table.columns), *table.rows, *filter(None, [table.total])]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, table.columns, strict=True)
        aligned = (cell.rjust(width) if column.is_number else cell.ljust(width) for cell, width, column in cells)
        yield "  ".join(aligned).rstrip()
