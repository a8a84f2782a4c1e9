"""The bytes of a log -> its lines as the build said them, with the time where the log tells one.

Whatever carried the log put something around each line: colours, a time, the name of a CI step, pip's indentation.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from wheelfactory.errors import InputError

LONGEST = 1 << 20
"""Bytes of a line that are read. The link command of 2,782 objects has 0.4 MB; what is longer is not for people."""

CHUNK = 1 << 16
PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "a zip archive", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}
"""The first bytes of what logs come packed in; GitHub hands out those of a run as a zip archive."""

_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_STEP = re.compile(r"^[^\t]{1,200}\t[^\t]{1,200}\t\ufeff?(?=\d{4}-)")
"""``gh run view --log`` names job and step in front of each line."""
_CLOCK = re.compile(
    r"^\ufeff?\[?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s|$)"
)
_SINCE_START = re.compile(r"^(?:#\d+ )?(\d{1,6}\.\d{2,3})(?:\s|$)")
"""BuildKit's plain output: the number of the step, then seconds since it began."""

_FIRST_CLOCK = 1e8
"""Times below this are seconds since a start, not since 1970: no log was written in 1973."""


@dataclass(frozen=True)
class Line:
    """One line without what surrounds it."""

    text: str
    time: float | None = None
    """Seconds since 1970 by the clock of the log, its time zone ignored; or since some start (see `is_clock`)."""


def is_clock(time: float) -> bool:
    """Whether a `Line.time` is one of a clock, and not a time since a start."""
    return time >= _FIRST_CLOCK


def read_lines(stream: BinaryIO, name: str) -> Iterator[Line]:
    """The lines of a log that are not empty, in bounded memory, cut to `LONGEST` bytes.

    A carriage return ends a line, as progress that is written over itself is many lines. `name` is for the error.
    Raises `InputError` if it is no text.
    """
    rest, first = b"", True
    while chunk := stream.read(CHUNK):
        if first:
            _refuse_binary(chunk, name)
            first = False
        *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        yield from _cleaned(whole)
        rest = rest[:LONGEST]
    yield from _cleaned([rest])


def _cleaned(raw: list[bytes]) -> Iterator[Line]:
    for words in raw:
        line = clean(words[:LONGEST].decode("utf-8", "replace"))
        if line.text:
            yield line


def _refuse_binary(start: bytes, name: str) -> None:
    packed = next((kind for magic, kind in PACKED.items() if start.startswith(magic)), None)
    if packed:
        raise InputError("not a log", f"{name} is {packed}", "unpack it first")
    if b"\0" in start:
        raise InputError("not a log", f"{name} is not text", "give what the build printed, as UTF-8 text")


def clean(raw: str) -> Line:
    """A line as the build said it: without colours, time, step and indentation."""
    text = _COLOUR.sub("", raw) if "\x1b" in raw else raw
    if "\t" in text[:400]:
        text = _STEP.sub("", text)
    match = _CLOCK.match(text)
    if match:
        return Line(text[match.end() :].strip(), _seconds(match))
    match = _SINCE_START.match(text)
    if match:
        return Line(text[match.end() :].strip(), float(match[1]))
    return Line(text.strip())


def _seconds(match: re.Match[str]) -> float:
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    try:
        whole = timegm((year, month, day, hour, minute, second))
    except (ValueError, OverflowError):  # a month 13: not a time, though it looks like one
        return 0.0
    return whole + float(f"0.{match[7] or 0}")
