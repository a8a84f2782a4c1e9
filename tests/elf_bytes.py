"""Build ELF files byte by byte, so that any number in them can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BASE = 0x10000
"""The load address. Not 0, so that no address equals its offset."""

NEEDED, HASH, STRTAB, SYMTAB, RELA, RELASZ, STRSZ, SONAME, RPATH, REL, RELSZ = 1, 4, 5, 6, 7, 8, 10, 14, 15, 17, 18
PLTRELSZ, PLTREL, JMPREL, RUNPATH = 2, 20, 23, 29
GNU_HASH, VERSYM, VERNEED = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE
LOCAL, GLOBAL, WEAK = 0, 1, 2
LOAD, DYNAMIC = 1, 2

_START = 64 + 3 * 56
"""Behind the header and the segments."""


def numbers(form: str, *values: int) -> bytes:
    return struct.pack(f"<{form}", *values)


def header(**changes: int) -> bytes:
    """Return the header; fields that are not given are 0 or correct."""
    fields = {"type": 3, "machine": 62, "version": 1, "entry": 0, "segments": 0, "sections": 0, "flags": 0}
    fields |= {"size": 64, "segment size": 56, "segment count": 0, "section size": 64}
    fields |= {"section count": 0, "names": 0, **changes}
    return b"\x7fELF" + bytes([2, 1, 1]) + bytes(9) + numbers("HHIQQQIHHHHHH", *fields.values())


def segment(kind: int, offset: int, size: int, address: int) -> bytes:
    return numbers("IIQQQQQQ", kind, 4, offset, address, 0, size, size, 8)


def section(name: int, offset: int, size: int, link: int = 0) -> bytes:
    return numbers("IIQQQQIIQQ", name, 1, 0, 0, offset, size, link, 0, 1, 0)


def symbol(name: int, bind: int = GLOBAL, section: int = 0) -> bytes:
    return numbers("IBBHQQ", name, bind << 4, 0, section, 0, 0)


def row(tag: int, value: int) -> bytes:
    return numbers("qQ", tag, value)


def relocation(symbol: int, addend: bool) -> bytes:
    return numbers("QQq", 0, symbol << 32 | 1, 0) if addend else numbers("QQ", 0, symbol << 32 | 1)


@dataclass
class Strings:
    """A string table."""

    data: bytes = b"\0"

    def add(self, text: str) -> int:
        self.data += text.encode() + b"\0"
        return len(self.data) - len(text.encode()) - 1


@dataclass
class ElfBytes:
    """Builder of a file: pieces with addresses, then a dynamic table that refers to them."""

    strings: Strings = field(default_factory=Strings)
    body: bytes = b""
    rows: list[tuple[int, int]] = field(default_factory=list)

    def add(self, data: bytes) -> int:
        """Append a piece and return its address."""
        self.body += bytes(-len(self.body) % 8)
        self.body += data
        return BASE + _START + len(self.body) - len(data)

    def table(self, tag: int, data: bytes) -> None:
        """Add a piece that a row of the dynamic table points to."""
        self.rows.append((tag, self.add(data)))

    def text(self, tag: int, text: str) -> None:
        self.rows.append((tag, self.strings.add(text)))

    def symbols(self, *symbols: tuple[str, int, int]) -> None:
        """Add the symbol table, which starts with an empty row; a symbol is name, bind and section."""
        rows = [symbol(self.strings.add(name), bind, section) for name, bind, section in symbols]
        self.table(SYMTAB, b"".join([symbol(0, LOCAL), *rows]))

    def hash(self, count: int) -> None:
        self.table(HASH, numbers("II", 1, count) + bytes(4 * (1 + count)))

    def gnu_hash(self, first: int, chain: Sequence[int], buckets: Sequence[int] | None = None) -> None:
        """A GNU hash table of one bucket, whose symbols begin at `first`."""
        buckets = [first] if buckets is None else buckets
        head = numbers("IIIIQ", len(buckets), first, 1, 0, 0)
        self.table(GNU_HASH, head + numbers(f"{len(buckets) + len(chain)}I", *buckets, *chain))

    def relocations(self, tag: int, size_tag: int, symbols: Sequence[int], addend: bool) -> None:
        data = b"".join(relocation(symbol, addend) for symbol in symbols)
        self.table(tag, data)
        self.rows.append((size_tag, len(data)))

    def versions(self, needs: Mapping[str, Sequence[tuple[int, str]]]) -> None:
        """Add the needed versions: indexes and names for each library."""
        data = b""
        for place, (library, wanted) in enumerate(needs.items()):
            size = 16 * (1 + len(wanted))
            step = 0 if place == len(needs) - 1 else size
            data += numbers("HHIII", 1, len(wanted), self.strings.add(library), 16, step)
            for position, (index, name) in enumerate(wanted):
                follows = 0 if position == len(wanted) - 1 else 16
                data += numbers("IHHII", 0, 0, index, self.strings.add(name), follows)
        self.table(VERNEED, data)

    def build(self, *, changed: Mapping[int, int | None] | None = None, end: bool = True, **changes: int) -> bytes:
        """Return the file; `changed` replaces values of the dynamic table or (None) drops rows."""
        rows = [*self.rows, (STRTAB, self.add(self.strings.data)), (STRSZ, len(self.strings.data))]
        kept = [(tag, (changed or {}).get(tag, value)) for tag, value in rows]
        dynamic = b"".join(row(tag, value) for tag, value in kept if value is not None)
        dynamic += row(0, 0) if end else b""
        at = self.add(dynamic) - BASE
        size = _START + len(self.body)
        segments = [segment(LOAD, 0, size, BASE), segment(DYNAMIC, at, len(dynamic), BASE + at)]
        head = header(**{"segments": 64, "segment count": len(segments), **changes})
        return (head + b"".join(segments)).ljust(_START, b"\0") + self.body


def with_sections(*contents: tuple[str, bytes]) -> bytes:
    """Return a file with these sections, followed by the section of their names."""
    names = Strings()
    at = 64
    body, rows = b"", [section(0, 0, 0)]
    for name, content in contents:
        rows.append(section(names.add(name), at + len(body), len(content)))
        body += content
    itself = names.add(".shstrtab")
    rows.append(section(itself, at + len(body), len(names.data)))
    body += names.data
    head = header(**{"sections": at + len(body), "section count": len(rows), "names": len(rows) - 1})
    return head + body + b"".join(rows)
