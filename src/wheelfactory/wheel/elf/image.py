"""Read the structure of an ELF file: header, sections, segments, and bytes by offset or address.

Only 64-bit little-endian files, as x86-64, AArch64 and AMD GPUs have them. Source: System V ABI, chapter 4.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias  # Python 3.10

MAGIC = b"\x7fELF"
_CLASS_AND_ORDER = b"\x02\x01"
_HEADER, SECTION_HEADER, _SEGMENT = map(struct.Struct, ("<HHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IIQQQQQQ"))
SYMBOL, DYNAMIC_ROW = struct.Struct("<IBBHQQ"), struct.Struct("<qQ")
"""The rows of tables."""

PT_LOAD, PT_DYNAMIC = 1, 2
EM_AMDGPU = 224

Buffer: TypeAlias = "bytes | mmap.mmap | memoryview"

_NO_BITS = 8
# bytes of zeros before a page boundary; pages have 4 KiB, on some systems 64 KiB
_MAX_GAP = 1 << 16

MAX_NAME_SIZE = 1 << 16
"""Bytes of a symbol or library name; mangled names of CK kernels have about 10,000."""
# total size of the names over size of the string table; the maximum of 1,700 libraries of Debian is 1.13
_MAX_RATIO = 4


class DamagedElfError(ValueError):
    """The file is not an ELF file, or its tables contradict its header."""


@dataclass(frozen=True)
class Section:
    """A row of the section header table; `name` is an offset into the table of section names."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Segment:
    """A row of the program header table."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int


class ElfImage:
    """An ELF file in memory. Every method and property raises `DamagedElfError` for an inconsistent file."""

    def __init__(self, data: Buffer) -> None:
        self.data = memoryview(data)
        if bytes(self.data[:4]) != MAGIC:
            raise DamagedElfError("no ELF magic")
        if bytes(self.data[4:6]) != _CLASS_AND_ORDER:
            raise DamagedElfError("not a 64-bit little-endian ELF file")
        fields = self.unpack(_HEADER, 16)
        self.type, self.machine, self.version, self.entry = fields[:4]
        self._segments_at, self._sections_at, self.flags = fields[4:7]
        self._segment_size, self._segment_count, self._section_size, self._section_count, self._names = fields[8:]

    def bytes_at(self, offset: int, size: int) -> memoryview:
        """Return `size` bytes at a file offset."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise DamagedElfError(f"{size} bytes at {offset} are outside the file")
        return self.data[offset : offset + size]

    def unpack(self, form: struct.Struct, offset: int) -> tuple[Any, ...]:
        """Unpack one record at a file offset."""
        return form.unpack(self.bytes_at(offset, form.size))

    def unpack_table(self, form: struct.Struct, offset: int, count: int) -> Iterator[tuple[Any, ...]]:
        """Unpack `count` consecutive records."""
        return form.iter_unpack(self.bytes_at(offset, count * form.size))

    def file_offset(self, address: int) -> int:
        """Return the file offset of a load address."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.address <= address < segment.address + segment.file_size:
                return segment.offset + address - segment.address
        raise DamagedElfError(f"address {address:#x} is in no segment")

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The program header table; empty for an object file."""
        count = self._segment_count
        if count == 0xFFFF:  # more than fit into the header; only memory dumps have so many
            raise DamagedElfError("more than 65,534 segments")
        if count and self._segment_size != _SEGMENT.size:
            raise DamagedElfError(f"program headers of {self._segment_size} bytes")
        rows = self.unpack_table(_SEGMENT, self._segments_at, count)
        return tuple(Segment(kind, flags, offset, at, size) for kind, flags, offset, at, _, size, _, _ in rows)

    def sections(self) -> Iterator[Section]:
        """Yield the rows of the section header table; nothing if it was stripped."""
        # an iterator, because a hostile file can have millions of rows
        if not self._sections_at:
            return iter(())
        return (_section(row) for row in self.unpack_table(SECTION_HEADER, self._sections_at, self.section_count))

    @cached_property
    def section_count(self) -> int:
        """The number of rows of the section header table."""
        if not self._sections_at:
            return 0
        if self._section_size != SECTION_HEADER.size:
            raise DamagedElfError(f"section headers of {self._section_size} bytes")
        # 0: the count does not fit into the header, and the first section holds it
        return self._section_count or _section(self.unpack(SECTION_HEADER, self._sections_at)).size

    @property
    def table_ranges(self) -> tuple[tuple[int, int], ...]:
        """Offset and size in bytes of the header, the segment table and the section table."""
        header = (0, 16 + _HEADER.size)
        segments = (self._segments_at, self._segment_count * self._segment_size)
        return header, segments, (self._sections_at, self.section_count * self._section_size)

    def uncovered_bytes(self) -> Iterator[str]:
        """Yield bytes between or after the tables and sections, unless they are padding, and overlaps."""
        sections = ((item.offset, item.size) for item in self.sections() if item.type != _NO_BITS)
        at = 0
        for offset, size in [*sorted([*self.table_ranges, *sections]), (len(self.data), 0)]:
            if offset > at and (offset - at > _MAX_GAP or any(self.data[at:offset])):
                yield f"{offset - at:,} bytes at {at:,} outside"
            elif size and offset < at:
                yield f"an overlap at {offset:,}"
            at = max(at, offset + size)

    def named_sections(self) -> Iterator[tuple[bytes, Section]]:
        """Yield each section with its name."""
        names = self._section_names()
        for item in self.sections():
            name = bytes(names[item.name : item.name + MAX_NAME_SIZE]) if names else b""
            yield name.partition(b"\0")[0], item

    def find_section(self, name: bytes) -> Section | None:
        """Find the first section of a name."""
        names = self._section_names()
        if names is None:
            return None
        wanted = name + b"\0"  # compared in place: copying names of a table without zero bytes would be quadratic
        return next((item for item in self.sections() if names[item.name : item.name + len(wanted)] == wanted), None)

    def _section_names(self) -> memoryview | None:
        """Return the table of section names; None if there is none."""
        index = self._names
        if index == 0xFFFF:  # more than fits into the header
            index = next((first.link for first in self.sections()), 0)
        table = next(islice(self.sections(), index, None), None)
        return self.section_bytes(table) if table else None

    def section_bytes(self, section: Section) -> memoryview:
        """Return the bytes of a section."""
        return self.bytes_at(section.offset, section.size)


def _section(row: tuple[Any, ...]) -> Section:
    return Section(*row[:7])


class StringTable:
    """A string table. Names may share bytes, so their total length is limited by the size of the table."""

    def __init__(self, table: memoryview) -> None:
        self._table = bytes(table)
        # names may overlap (suffix merging), so n rows could ask for n times the whole table
        self._left = _MAX_RATIO * len(table) + MAX_NAME_SIZE
        self._known: dict[int, str] = {}

    def read(self, offset: int) -> str:
        """Return the name at an offset. Raises `DamagedElfError` if it has no end, or if all names are too long."""
        if offset in self._known:
            return self._known[offset]
        end = self._table.find(b"\0", offset, offset + MAX_NAME_SIZE)
        if end < 0:
            raise DamagedElfError(f"no name at {offset} of the string table")
        self._left -= end - offset
        if self._left < 0:
            raise DamagedElfError(f"the names are more than {_MAX_RATIO} times as long as the string table")
        return self._known.setdefault(offset, self._table[offset:end].decode("utf-8", "backslashreplace"))
