"""A wheel with compiled code -> its light twin: all that auditwheel looks at, in a fraction of the bytes.

Device code is 90 % and more of a HIP library, in one section that no tool for the host looks into. What is kept are
the very bytes of the original; only the file offsets and sizes in its header and tables are other ones. Addresses stay,
so what lies behind the cut in the segment that held it is no longer found by its address. That is why each light file
is compared with its original, and dropped if it says anything else.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import InputError, VerificationError
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.elf.dynamic import Dynamic, read_dynamic
from wheelfactory.wheel.elf.image import PT_LOAD, Buffer, DamagedElfError, ElfImage
from wheelfactory.wheel.elf.read import FATBIN
from wheelfactory.wheel.read import Wheel, map_elf_member
from wheelfactory.wheel.rewrite import format_record

_PLATFORM = re.compile(r"(?:linux|manylinux(?:1|2010|2014|_\d+_\d+))_(x86_64|aarch64)")
_CHUNK = 1 << 20

_READ_BY_SECTION = (
    *(b".dynamic", b".dynstr", b".dynsym", b".gnu.version", b".gnu.version_r"),
    *(b".interp", b".note.gnu.property"),
)
"""What auditwheel, which goes by sections where the loader goes by segments, reads of a file."""

_HEADER_AT = 16
"""Where the fields of the header begin, behind e_ident."""
_SEGMENTS_AT, _SECTIONS_AT = 4, 5
"""Their places among these fields, as in `Layout.header`: e_phoff and e_shoff."""


def write_stripped_wheel(raw: Path, folder: Path) -> Path | None:
    """Write the twin of a wheel into `folder` and give its path; None if the wheel holds no ELF file.

    It has the wheel's name, but for the platform tag, which says no more than the architecture, and of its members
    METADATA, WHEEL and the ELF files, without their device code (`strip_device_code`). RECORD lists them without
    hashes: nobody installs it. ELF files are unpacked one after the other, to files without a name.

    Raises `InputError` if `raw` is no wheel or has a damaged ELF file, `VerificationError` if it has ELF files and is
    not tagged for one architecture of Linux.
    """
    wheel = Wheel.open(raw)
    names = []
    path = folder / "twin.whl"
    with open_archive(raw) as archive, zipfile.ZipFile(path, "w") as twin:
        for name in sorted(wheel.sizes):
            data = map_elf_member(archive, name)
            if data is None:
                continue
            try:
                _add(twin, name, strip_device_code(data))
            except DamagedElfError as error:
                raise InputError("damaged ELF file", f"{name} ({error})", "build it again") from None
            names.append(name)
        if not names:
            return None
        for name in (f"{wheel.dist_info}/{text}" for text in ("METADATA", "WHEEL")):
            _add(twin, name, wheel.read(name))
            names.append(name)
        record = f"{wheel.dist_info}/RECORD"
        _add(twin, record, format_record([name, "", ""] for name in [*names, record]))
    return path.rename(folder / f"{raw.name.rpartition('-')[0]}-linux_{parse_architecture(wheel)}.whl")


def _add(archive: zipfile.ZipFile, name: str, data: Buffer) -> None:
    view = memoryview(data)
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o100755 << 16
    info.file_size = len(view)  # zipfile decides by it whether the member needs ZIP64
    with archive.open(info, "w") as member:
        for start in range(0, len(view), _CHUNK):
            member.write(view[start : start + _CHUNK])


def parse_architecture(wheel: Wheel) -> str:
    """The architecture that a wheel is tagged for. Raises `VerificationError` if that is not one of Linux alone."""
    found = {match[1] if (match := _PLATFORM.fullmatch(tag)) else None for tag in wheel.platform_tags}
    one = found.pop()
    if found or one is None:
        raise VerificationError(
            "not tagged for one Linux",
            f"{wheel.path.name}: expected linux_x86_64 or linux_aarch64, found {', '.join(wheel.platform_tags)}",
            "it holds compiled code: build it with setup.py on the machine it is for",
        )
    return one


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


def strip_device_code(data: Buffer) -> Buffer:
    """The file without its device code; the file itself where it has none or the cut cannot be shown to be harmless.

    Harmless is: what it needs, defines and leaves undefined, its versions and paths, and the sections that auditwheel
    reads are the same. Raises `DamagedElfError` if the file does not hold together.
    """
    image = ElfImage(data)
    said = _said(image)
    cut = _find_cut(image)
    if cut is None:
        return data
    try:
        light = _without(image, cut)
        return light if _said(ElfImage(light)) == said else data
    except DamagedElfError:  # of the light file, or of one that cannot be cut: the original was read to the end above
        return data


def _said(image: ElfImage) -> tuple[Dynamic, dict[bytes, bytes]]:
    found = {name: image.find_section(name) for name in _READ_BY_SECTION}
    sections = {name: bytes(image.section_bytes(section)) for name, section in found.items() if section}
    return read_dynamic(image), sections


def _find_cut(image: ElfImage) -> Cut | None:
    """The device code of a 64-bit file, in whole pages, so that what lies behind it keeps its place in a page."""
    section = image.find_section(FATBIN)
    if section is None or not image.layout.is_64:
        return None
    page = max((row[7] for row in _tables(image)[1] if row[0] == PT_LOAD), default=1) or 1
    rest = section.size % page
    end = section.offset + section.size - rest
    return Cut(section.offset, end, rest) if end > section.offset else None


def _tables(image: ElfImage) -> tuple[list[int], list[tuple[int, ...]]]:
    """The fields of the header, and the rows of the program header table."""
    fields = list(image.unpack(image.layout.header, _HEADER_AT))
    return fields, list(image.unpack_table(image.layout.segment, fields[_SEGMENTS_AT], len(image.segments)))


def _without(image: ElfImage, cut: Cut) -> memoryview:
    """The bytes around a cut, with the header and both tables made to fit."""
    layout, (fields, segments) = image.layout, _tables(image)
    count = sum(1 for _ in image.sections())
    sections = image.unpack_table(layout.section, fields[_SECTIONS_AT], count)  # row by row: a file may have millions
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
