"""Split a log into the lines that the build printed, with the time of each line if the log has one.

Removes what transport adds to a line: colours, time, the name of a CI step, pip's indentation.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from wheelfactory.core.errors import InputError

# longer lines are truncated. A compile command has a few KB, and the start of the 0.4 MB link command of 2,782 objects
# is enough. The limit also bounds the time of the regular expressions on a hostile line
MAX_LINE_BYTES = 1 << 14

CHUNK = 1 << 16
# magic bytes of compressed files; GitHub provides the logs of a run as a zip archive
COMPRESSED_MAGIC = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "a zip archive", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}

# terminal escapes and control characters. The explanation prints log lines that another person may have written
_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
# ``gh run view --log`` prefixes each line with job and step
_STEP = re.compile(r"^[^\t]{1,200}\t[^\t]{1,200}\t\ufeff?(?=\d{4}-)")
_CLOCK = re.compile(
    r"^\ufeff?\[?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s|$)"
)
# BuildKit's plain output: step number, then seconds since the step started
_SINCE_START = re.compile(r"^(?:#\d+ )?(\d{1,6}\.\d{2,3})(?:\s|$)")
# a call of a compiler
_CALL = re.compile(r"(?:^|[/ ])(?:hipcc|nvcc|(?:amd)?clang\+\+|[cg]\+\+)(?:-\d+)?(?: |$)")
_NEXT_FLAG = re.compile(r"'?--?[A-Za-z]")
_CONTINUES = "\\"
# flags whose value is the next word
_HALF = (" -c", " -o", " -I", " -isystem", " -mllvm", " -x")

# smaller times are relative to a start, not to 1970. The limit is in 1973, before any such log
_FIRST_CLOCK = 1e8


@dataclass(frozen=True)
class LogLine:
    """One cleaned line."""

    text: str
    time: float | None = None
    """Seconds since 1970 by the log's clock, time zone ignored, or since a start (see `is_wall_clock`)."""


def is_wall_clock(time: float) -> bool:
    """Whether a `LogLine.time` is from a clock, not relative to a start."""
    return time >= _FIRST_CLOCK


def read_log_lines(stream: BinaryIO, name: str) -> Iterator[LogLine]:
    """Yield the non-empty lines of a log in bounded memory, truncated to `MAX_LINE_BYTES`.

    `name` appears in the error. Raises InputError if the log is not text.
    """
    chunk, rest = stream.read(CHUNK), b""
    if packed := next((kind for magic, kind in COMPRESSED_MAGIC.items() if chunk.startswith(magic)), None):
        raise InputError("not a log", f"{name} is {packed}", "decompress it first")
    if b"\0" in chunk:
        raise InputError("not a log", f"{name} is not text", "pass the output of the build as UTF-8 text")
    while chunk or rest:
        # progress output rewrites a line with carriage returns: each version becomes a line
        raw = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        rest = raw.pop()[:MAX_LINE_BYTES] if chunk else b""  # an incomplete line
        for words in raw:
            line = clean_line(words[:MAX_LINE_BYTES].decode("utf-8", "replace"))
            if line.text:
                yield line
        chunk = stream.read(CHUNK)


def clean_line(raw: str) -> LogLine:
    """Remove colours, time, step and indentation from a line, and truncate it to `MAX_LINE_BYTES` characters."""
    text = raw[:MAX_LINE_BYTES]
    text = text if text.isprintable() else _CONTROL.sub("", text)
    if "\t" in text[:400]:
        text = _STEP.sub("", text)
    clock = _CLOCK.match(text)
    if clock:
        text = text[clock.end() :]
    since = _SINCE_START.match(text)  # can follow a clock time, if a CI job builds an image
    if since:
        text = text[since.end() :]
    return LogLine(text.strip(), _seconds(clock) if clock else float(since[1]) if since else None)


def join_split_commands(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield the lines; join each compile command that was pasted as several lines.

    A continuation starts with a flag, or follows a backslash or a flag that needs a value. A command that was split
    within a word stays split.
    """
    pending: LogLine | None = None
    for line in lines:
        if pending and _is_continuation(pending.text, line.text):
            pending = LogLine(f"{pending.text.rstrip(_CONTINUES)} {line.text}", pending.time)
        else:
            if pending:
                yield pending
            pending = line
    if pending:
        yield pending


def _is_continuation(before: str, after: str) -> bool:
    if not (before.endswith((_CONTINUES, *_HALF)) or _NEXT_FLAG.match(after)):
        return False
    return len(before) < MAX_LINE_BYTES and _CALL.search(before) is not None


def _seconds(match: re.Match[str]) -> float | None:
    try:
        whole = timegm(tuple(int(match[group]) for group in range(1, 7)))
    except (ValueError, OverflowError):  # such as month 13
        return None
    return whole + float(f"0.{match[7] or 0}")
