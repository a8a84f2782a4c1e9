"""Text for people: safe for a terminal, counted, and wrapped at its width.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

NO_BREAK = "\x1f"
"""A space where a line must not be broken, such as in a command; `wrap_line` replaces it by a space."""

_QUOTED_COMMAND = re.compile(r"`[^`]+`")
_USER_INFORMATION = re.compile(r"(?<=:/)(/?)[^\s/?#'\"]*@")  # one slash: as a path has it
_MAX_MESSAGE = 10_000
"""Characters of a message; a file or a server can put a megabyte into one."""


def as_printable(text: str) -> str:
    """Escape what a terminal interprets or hides, as in JSON (``\\u001b``), and mask names and passwords in URLs."""
    if not text.isprintable():
        letters = (letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text.expandtabs())
        text = "".join(letters).replace("\\x", "\\u00")
    return _USER_INFORMATION.sub(r"\1***@", text)


def write_lines(stream: TextIO | None, lines: Iterable[str]) -> None:
    """Write lines for a person; all text that comes from outside goes through `as_printable` here.

    A line break within a line is escaped, so that no text can forge a line.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for line in lines:
        # GPU names have (R) and (TM) signs, which an ASCII terminal lacks
        print(as_printable(line).encode(encoding, "replace").decode(encoding), file=stream)


def write_message(stream: TextIO | None, message: str) -> None:
    """Write an error, a warning or progress, wrapped on a terminal. Further lines of it are indented."""
    text = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}..."
    width = terminal_width(stream)
    for line in re.sub(r"\n(?! )", "\n  ", text).split("\n"):
        write_lines(stream, wrap_line(as_printable(line), width))


def count_text(number: int, thing: str) -> str:
    """``1 wheel``, ``2 wheels``."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


def shorten_names(names: Sequence[str], most: int = 3) -> str:
    """The first names and the number of the others: ``a, b, c and 2 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def terminal_width(stream: TextIO | None) -> int | None:
    """Return the columns of the terminal that a stream writes to; None for a pipe, a file or an unknown width."""
    if stream is None or stream.closed or not stream.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return os.get_terminal_size(stream.fileno()).columns or None  # 0: unknown, as under `docker exec -t` in a script


def wrap_line(line: str, width: int | None, start: str = "", further: str | None = None) -> list[str]:
    """Wrap a line between words at `width` characters; None leaves it in one piece. A longer word is not broken.

    A command in backticks stays in one piece if it fits, so that it can be copied. `start` begins the first line,
    `further` all others (default: the indent of the line, and four spaces).
    """
    if further is None:
        further = " " * (len(line) - len(line.lstrip()) + 4)
    if width is None:
        return [(start + line).replace(NO_BREAK, " ")]
    room = width - len(further)

    def keep(found: re.Match[str]) -> str:
        return found[0].replace(" ", NO_BREAK) if len(found[0]) < room else found[0]

    wrapper = textwrap.TextWrapper(
        width, initial_indent=start, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )
    lines = wrapper.wrap(_QUOTED_COMMAND.sub(keep, line)) or [(start + line).rstrip()]
    return [one.replace(NO_BREAK, " ") for one in lines]
