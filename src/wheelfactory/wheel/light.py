"""An ELF file -> the same file without its device code, for a program that only asks how it is loaded and linked.

Device code is 90 % and more of a HIP library, in one section that no tool for the host looks into. What is kept are
the very bytes of the original; only the file offsets and sizes in its header and tables are other ones. Addresses stay,
so what lies behind the cut in the segment that held it is no longer found by its address. That is why each light file
is compared with its original, and dropped if it says anything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from wheelfactory.wheel.elf.dynamic import Dynamic, read_dynamic
from wheelfactory.wheel.elf.image import PT_LOAD, Buffer, DamagedElfError, Image
from wheelfactory.wheel.elf.read import FATBIN

_READ_BY_SECTION = (
    *(b".dynamic", b".dynstr", b".dynsym", b".gnu.version", b".gnu.version_r"),
    *(b".interp", b".note.gnu.property"),
)
"""What auditwheel, which goes by sections where the loader goes by segments, reads of a file."""

_HEADER_AT = 16
"""Where the fields of the header begin, behind e_ident."""
_SEGMENTS_AT, _SECTIONS_AT = 4, 5
"""Their places among these fields, as in `Layout.header`: e_phoff and e_shoff."""


@dataclass(frozen=True)
class Cut:
    """The device code of a file: what is left out of it, and behind that less than a page that is kept as zeros."""

    start: int
    end: int
    rest: int
    """Bytes."""

    @property
    def size(self) -> int:
        """Bytes that are left out."""
        return self.end - self.start

    def move(self, offset: int, size: int) -> tuple[int, int]:
        """Where a range of the file lies after the cut, and how long it is then.

        Raises `DamagedElfError` if the range begins or ends inside of what is cut.
        """
        if offset + size <= self.start:
            return offset, size
        if offset >= self.end:
            return offset - self.size, size
        if offset <= self.start and offset + size >= self.end:
            return offset, size - self.size
        raise DamagedElfError(f"{size} bytes at {offset} lie partly in the device code")

    def move_whole(self, offset: int, size: int) -> int:
        """Where a range lies after the cut. Raises `DamagedElfError` if it loses a byte."""
        moved, left = self.move(offset, size)
        if left != size:
            raise DamagedElfError(f"the device code lies in the {size} bytes at {offset}")
        return moved


def lighten(data: Buffer) -> Buffer:
    """The file without its device code; the file itself where it has none or the cut cannot be shown to be harmless.

    Harmless is: what it needs, defines and leaves undefined, its versions and paths, and the sections that auditwheel
    reads are the same. Raises `DamagedElfError` if the file does not hold together.
    """
    image = Image(data)
    said = _said(image)
    cut = _find_cut(image)
    if cut is None:
        return data
    try:
        light = _without(image, cut)
        return light if _said(Image(light)) == said else data
    except DamagedElfError:  # of the light file, or of one that cannot be cut: the original was read to the end above
        return data


def _said(image: Image) -> tuple[Dynamic, dict[bytes, bytes]]:
    found = {name: image.find_section(name) for name in _READ_BY_SECTION}
    sections = {name: bytes(image.contents(section)) for name, section in found.items() if section}
    return read_dynamic(image), sections


def _find_cut(image: Image) -> Cut | None:
    """The device code of a 64-bit file, in whole pages, so that what lies behind it keeps its place in a page."""
    section = image.find_section(FATBIN)
    if section is None or not image.layout.is_64:
        return None
    page = max((row[7] for row in _tables(image)[1] if row[0] == PT_LOAD), default=1) or 1
    rest = section.size % page
    end = section.offset + section.size - rest
    return Cut(section.offset, end, rest) if end > section.offset else None


def _tables(image: Image) -> tuple[list[int], list[tuple[int, ...]]]:
    """The fields of the header, and the rows of the program header table."""
    fields = list(image.unpack(image.layout.header, _HEADER_AT))
    return fields, list(image.table(image.layout.segment, fields[_SEGMENTS_AT], len(image.segments)))


def _without(image: Image, cut: Cut) -> memoryview:
    """The bytes around a cut, with the header and both tables made to fit."""
    layout, (fields, segments) = image.layout, _tables(image)
    count = sum(1 for _ in image.sections())
    sections = image.table(layout.section, fields[_SECTIONS_AT], count)  # row by row: a file may have millions
    image.bytes_at(cut.start, cut.size + cut.rest)
    cut.move_whole(0, _HEADER_AT + layout.header.size)
    fields[_SEGMENTS_AT] = cut.move_whole(fields[_SEGMENTS_AT], len(segments) * layout.segment.size)
    fields[_SECTIONS_AT] = cut.move_whole(fields[_SECTIONS_AT], count * layout.section.size)
    light = bytearray(image.data[: cut.start])
    light += bytes(cut.rest)
    light += image.data[cut.end + cut.rest :]
    layout.header.pack_into(light, _HEADER_AT, *fields)
    for number, (kind, flags, offset, address, physical, size, *rest) in enumerate(segments):
        place = fields[_SEGMENTS_AT] + number * layout.segment.size
        moved, left = cut.move(offset, size)
        layout.segment.pack_into(light, place, kind, flags, moved, address, physical, left, *rest)
    for number, (name, kind, flags, address, offset, size, *rest) in enumerate(sections):
        place = fields[_SECTIONS_AT] + number * layout.section.size
        layout.section.pack_into(light, place, name, kind, flags, address, *cut.move(offset, size), *rest)
    return memoryview(light)
