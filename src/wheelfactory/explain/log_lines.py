"""The bytes of a log -> its lines as the build said them, with the time where the log tells one.

Whatever carried the log put something around each line: colours, a time, the name of a CI step, pip's indentation.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from wheelfactory.core.errors import InputError

MAX_LINE_BYTES = 1 << 14
"""Bytes of a line that are read. A compile command has some KB; of the link command of 2,782 objects, 0.4 MB, the
beginning is enough, and patterns would take minutes for a megabyte made to be slow."""

CHUNK = 1 << 16
COMPRESSED_MAGIC = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "a zip archive", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}
"""The first bytes of what logs come packed in; GitHub hands out those of a run as a zip archive."""

_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
"""Colours, titles and whatever else is for a terminal: an explanation shows lines of strangers."""
_STEP = re.compile(r"^[^\t]{1,200}\t[^\t]{1,200}\t\ufeff?(?=\d{4}-)")
"""``gh run view --log`` names job and step in front of each line."""
_CLOCK = re.compile(
    r"^\ufeff?\[?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s|$)"
)
_SINCE_START = re.compile(r"^(?:#\d+ )?(\d{1,6}\.\d{2,3})(?:\s|$)")
"""BuildKit's plain output: the number of the step, then seconds since it began."""
_CALL = re.compile(r"(?:^|[/ ])(?:hipcc|nvcc|(?:amd)?clang\+\+|[cg]\+\+)(?:-\d+)?(?: |$)")
"""That a line calls a compiler."""
_NEXT_FLAG = re.compile(r"'?--?[A-Za-z]")
_CONTINUES = "\\"
_HALF = (" -c", " -o", " -I", " -isystem", " -mllvm", " -x")
"""Flags whose value is the next word."""

_FIRST_CLOCK = 1e8
"""Times below this are seconds since a start, not since 1970: no log was written in 1973."""


@dataclass(frozen=True)
class LogLine:
    """One line without what surrounds it."""

    text: str
    time: float | None = None
    """Seconds since 1970 by the clock of the log, its time zone ignored; or since some start (see `is_wall_clock`)."""


def is_wall_clock(time: float) -> bool:
    """Whether a `Line.time` is one of a clock, and not a time since a start."""
    return time >= _FIRST_CLOCK


def read_log_lines(stream: BinaryIO, name: str) -> Iterator[LogLine]:
    """The lines of a log that are not empty, in bounded memory, cut to `MAX_LINE_BYTES` bytes.

    A carriage return ends a line, as progress that is written over itself is many lines. `name` is for the error.
    Raises `InputError` if it is no text.
    """
    chunk, rest = stream.read(CHUNK), b""
    packed = next((kind for magic, kind in COMPRESSED_MAGIC.items() if chunk.startswith(magic)), None)
    if packed:
        raise InputError("not a log", f"{name} is {packed}", "unpack it first")
    if b"\0" in chunk:
        raise InputError("not a log", f"{name} is not text", "give what the build printed, as UTF-8 text")
    while chunk or rest:
        raw = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        rest = raw.pop()[:MAX_LINE_BYTES] if chunk else b""  # the line that goes on in the next chunk
        for words in raw:
            line = clean_line(words[:MAX_LINE_BYTES].decode("utf-8", "replace"))
            if line.text:
                yield line
        chunk = stream.read(CHUNK)


def clean_line(raw: str) -> LogLine:
    """A line as the build said it: without colours, time, step and indentation, cut to `MAX_LINE_BYTES` letters."""
    text = raw[:MAX_LINE_BYTES]
    text = text if text.isprintable() else _CONTROL.sub("", text)
    if "\t" in text[:400]:
        text = _STEP.sub("", text)
    clock = _CLOCK.match(text)
    if clock:
        text = text[clock.end() :]
    since = _SINCE_START.match(text)  # behind a clock too: an image that a CI job builds
    if since:
        text = text[since.end() :]
    if clock:
        return LogLine(text.strip(), _seconds(clock))
    return LogLine(text.strip(), float(since[1]) if since else None)


def join_split_commands(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The same lines, with each compile command in one line again that was pasted in several.

    Its further lines begin with a flag, or follow a backslash or a flag that wants a value; one that was cut within a
    word stays cut.
    """
    pending: LogLine | None = None
    for line in lines:
        if pending and _goes_on(pending.text, line.text):
            pending = LogLine(f"{pending.text.rstrip(_CONTINUES)} {line.text}", pending.time)
        else:
            if pending:
                yield pending
            pending = line
    if pending:
        yield pending


def _goes_on(before: str, after: str) -> bool:
    if not (before.endswith((_CONTINUES, *_HALF)) or _NEXT_FLAG.match(after)):
        return False
    return len(before) < MAX_LINE_BYTES and _CALL.search(before) is not None


def _seconds(match: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    try:
        whole = timegm((year, month, day, hour, minute, second))
    except (ValueError, OverflowError):  # a month 13: not a time, though it looks like one
        return None
    return whole + float(f"0.{match[7] or 0}")
