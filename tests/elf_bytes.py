"""Build ELF files byte by byte, of any class and byte order, so that any number in them can be wrong."""

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


@dataclass(frozen=True)
class Form:
    """Class and byte order of a file."""

    wide: bool = True
    order: str = "<"

    def pack(self, wide: str, narrow: str, *numbers: int) -> bytes:
        return struct.pack(self.order + (wide if self.wide else narrow), *numbers)

    def header(self, **changes: int) -> bytes:
        """Return the header; fields that are not given are 0 or correct."""
        sizes = (64, 56, 64) if self.wide else (52, 32, 40)
        fields = {"type": 3, "machine": 62, "version": 1, "entry": 0, "segments": 0, "sections": 0, "flags": 0}
        fields |= {"size": sizes[0], "segment size": sizes[1], "segment count": 0, "section size": sizes[2]}
        fields |= {"section count": 0, "names": 0, **changes}
        magic = b"\x7fELF" + bytes([1 + self.wide, 1 if self.order == "<" else 2, 1]) + bytes(9)
        return magic + self.pack("HHIQQQIHHHHHH", "HHIIIIIHHHHHH", *fields.values())

    def segment(self, kind: int, offset: int, size: int, address: int) -> bytes:
        wide, narrow = (kind, 4, offset, address, 0, size, size, 8), (kind, offset, address, 0, size, size, 4, 8)
        return self.pack("IIQQQQQQ", "IIIIIIII", *(wide if self.wide else narrow))

    def section(self, name: int, offset: int, size: int, link: int = 0) -> bytes:
        return self.pack("IIQQQQIIQQ", "IIIIIIIIII", name, 1, 0, 0, offset, size, link, 0, 1, 0)

    def symbol(self, name: int, bind: int = GLOBAL, section: int = 0) -> bytes:
        wide, narrow = (name, bind << 4, 0, section, 0, 0), (name, 0, 0, bind << 4, 0, section)
        return self.pack("IBBHQQ", "IIIBBH", *(wide if self.wide else narrow))

    def row(self, tag: int, value: int) -> bytes:
        return self.pack("qQ", "iI", tag, value)

    def relocation(self, symbol: int, addend: bool) -> bytes:
        info = symbol << (32 if self.wide else 8) | 1
        return self.pack("QQq", "IIi", 0, info, 0) if addend else self.pack("QQ", "II", 0, info)

    def numbers(self, form: str, *numbers: int) -> bytes:
        return struct.pack(self.order + form, *numbers)


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

    form: Form = field(default_factory=Form)
    strings: Strings = field(default_factory=Strings)
    body: bytes = b""
    rows: list[tuple[int, int]] = field(default_factory=list)

    @property
    def _start(self) -> int:
        return (64 + 3 * 56) if self.form.wide else (52 + 3 * 32)

    def add(self, data: bytes) -> int:
        """Append a piece and return its address."""
        self.body += bytes(-len(self.body) % 8)
        self.body += data
        return BASE + self._start + len(self.body) - len(data)

    def table(self, tag: int, data: bytes) -> None:
        """Add a piece that a row of the dynamic table points to."""
        self.rows.append((tag, self.add(data)))

    def text(self, tag: int, text: str) -> None:
        self.rows.append((tag, self.strings.add(text)))

    def symbols(self, *symbols: tuple[str, int, int]) -> None:
        """Add the symbol table, which starts with an empty row; a symbol is name, bind and section."""
        rows = [self.form.symbol(self.strings.add(name), bind, section) for name, bind, section in symbols]
        self.table(SYMTAB, b"".join([self.form.symbol(0, LOCAL), *rows]))

    def hash(self, count: int) -> None:
        self.table(HASH, self.form.numbers("II", 1, count) + bytes(4 * (1 + count)))

    def gnu_hash(self, first: int, chain: Sequence[int], buckets: Sequence[int] | None = None) -> None:
        """A GNU hash table of one bucket, whose symbols begin at `first`."""
        buckets = [first] if buckets is None else buckets
        bloom = self.form.pack("Q", "I", 0)
        head = self.form.numbers("IIII", len(buckets), first, 1, 0)
        self.table(GNU_HASH, head + bloom + self.form.numbers(f"{len(buckets) + len(chain)}I", *buckets, *chain))

    def relocations(self, tag: int, size_tag: int, symbols: Sequence[int], addend: bool) -> None:
        data = b"".join(self.form.relocation(symbol, addend) for symbol in symbols)
        self.table(tag, data)
        self.rows.append((size_tag, len(data)))

    def versions(self, needs: Mapping[str, Sequence[tuple[int, str]]]) -> None:
        """Add the needed versions: indexes and names for each library."""
        data = b""
        for place, (library, wanted) in enumerate(needs.items()):
            size = 16 * (1 + len(wanted))
            step = 0 if place == len(needs) - 1 else size
            data += self.form.numbers("HHIII", 1, len(wanted), self.strings.add(library), 16, step)
            for position, (index, name) in enumerate(wanted):
                follows = 0 if position == len(wanted) - 1 else 16
                data += self.form.numbers("IHHII", 0, 0, index, self.strings.add(name), follows)
        self.table(VERNEED, data)

    def build(self, *, changed: Mapping[int, int | None] | None = None, end: bool = True, **header: int) -> bytes:
        """Return the file; `changed` replaces values of the dynamic table or (None) drops rows."""
        rows = [*self.rows, (STRTAB, self.add(self.strings.data)), (STRSZ, len(self.strings.data))]
        kept = [(tag, (changed or {}).get(tag, value)) for tag, value in rows]
        dynamic = b"".join(self.form.row(tag, value) for tag, value in kept if value is not None)
        dynamic += self.form.row(0, 0) if end else b""
        at = self.add(dynamic) - BASE
        size = self._start + len(self.body)
        segments = [self.form.segment(LOAD, 0, size, BASE), self.form.segment(DYNAMIC, at, len(dynamic), BASE + at)]
        place = 64 if self.form.wide else 52
        head = self.form.header(**{"segments": place, "segment count": len(segments), **header})
        return (head + b"".join(segments)).ljust(self._start, b"\0") + self.body


def with_sections(form: Form, *contents: tuple[str, bytes]) -> bytes:
    """Return a file with these sections, followed by the section of their names."""
    names = Strings()
    at = 64 if form.wide else 52
    body, rows = b"", [form.section(0, 0, 0)]
    for name, content in contents:
        rows.append(form.section(names.add(name), at + len(body), len(content)))
        body += content
    itself = names.add(".shstrtab")
    rows.append(form.section(itself, at + len(body), len(names.data)))
    body += names.data
    head = form.header(**{"sections": at + len(body), "section count": len(rows), "names": len(rows) - 1})
    return head + body + b"".join(rows)
