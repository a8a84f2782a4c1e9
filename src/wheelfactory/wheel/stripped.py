"""Make a stripped copy of a wheel for auditwheel: the same ELF files without their device code.

Device code is 90 % or more of a HIP library, in one section that host tools do not read. Stripping removes its bytes
and adapts file offsets and sizes in the header and tables, but not addresses. So data behind the cut in the same
segment can no longer be found by its address. Therefore each stripped file is compared with the original, and the
original is used if anything that auditwheel reads differs.
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

# the sections that auditwheel reads (the loader uses segments instead)
_READ_BY_SECTION = (
    *(b".dynamic", b".dynstr", b".dynsym", b".gnu.version", b".gnu.version_r"),
    *(b".interp", b".note.gnu.property"),
)

# offset of the first header field after e_ident, in bytes
_HEADER_AT = 16
_SEGMENTS_AT, _SECTIONS_AT = 4, 5
"""Indices of e_phoff and e_shoff among the fields of `Layout.header`."""


def write_stripped_wheel(raw: Path, folder: Path) -> Path | None:
    """Write the stripped copy of a wheel into `folder` and return its path; None if the wheel has no ELF file.

    The copy holds METADATA, WHEEL, the stripped ELF files and a RECORD without hashes (it is never installed). Its
    platform tag is ``linux_ARCHITECTURE``.

    Raises `InputError` if `raw` is not a wheel or has a damaged ELF file, `VerificationError` if it has ELF files and
    is not tagged for exactly one Linux architecture.
    """
    wheel = Wheel.open(raw)
    names = []
    path = folder / "stripped.whl"
    with open_archive(raw) as archive, zipfile.ZipFile(path, "w") as stripped:
        for name in sorted(wheel.sizes):
            data = map_elf_member(archive, name)
            if data is None:
                continue
            try:
                _add(stripped, name, strip_device_code(data))
            except DamagedElfError as error:
                raise InputError("damaged ELF file", f"{name} ({error})", "build it again") from None
            names.append(name)
        if not names:
            return None
        for name in (f"{wheel.dist_info}/{text}" for text in ("METADATA", "WHEEL")):
            _add(stripped, name, wheel.read(name))
            names.append(name)
        record = f"{wheel.dist_info}/RECORD"
        _add(stripped, record, format_record([name, "", ""] for name in [*names, record]))
    return path.rename(folder / f"{raw.name.rpartition('-')[0]}-linux_{parse_architecture(wheel)}.whl")


def _add(archive: zipfile.ZipFile, name: str, data: Buffer) -> None:
    view = memoryview(data)
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o100755 << 16
    info.file_size = len(view)  # zipfile needs it to choose ZIP64
    with archive.open(info, "w") as member:
        for start in range(0, len(view), _CHUNK):
            member.write(view[start : start + _CHUNK])


def parse_architecture(wheel: Wheel) -> str:
    """Return the architecture in the platform tags. Raises `VerificationError` unless it is exactly one of Linux."""
    found = {match[1] if (match := _PLATFORM.fullmatch(tag)) else None for tag in wheel.platform_tags}
    one = found.pop()
    if found or one is None:
        raise VerificationError(
            "not tagged for one Linux architecture",
            f"{wheel.path.name}: expected linux_x86_64 or linux_aarch64, found {', '.join(wheel.platform_tags)}",
            "it has compiled code: build it with setup.py on the target machine",
        )
    return one


@dataclass(frozen=True)
class Cut:
    """The range of a file to remove: whole pages of device code; the last, partial page is kept as zeros."""

    start: int
    end: int
    rest: int
    """Size of the partial page after `end`, in bytes."""

    @property
    def size(self) -> int:
        """Bytes to remove."""
        return self.end - self.start

    def move(self, offset: int, size: int) -> tuple[int, int]:
        """Return offset and size of a range after the cut.

        Raises `DamagedElfError` if the range begins or ends inside the cut.
        """
        if offset + size <= self.start:
            return offset, size
        if offset >= self.end:
            return offset - self.size, size
        if offset <= self.start and offset + size >= self.end:
            return offset, size - self.size
        raise DamagedElfError(f"{size} bytes at {offset} overlap the device code")

    def move_whole(self, offset: int, size: int) -> int:
        """Return the offset of a range after the cut. Raises `DamagedElfError` if the cut removes a byte of it."""
        moved, left = self.move(offset, size)
        if left != size:
            raise DamagedElfError(f"the {size} bytes at {offset} contain the device code")
        return moved


def strip_device_code(data: Buffer) -> Buffer:
    """Remove the device code of an ELF file; return `data` itself if it has none or if auditwheel could see the cut.

    auditwheel cannot see it if the dynamic table, the symbols and the sections that it reads are equal in both files.
    Raises `DamagedElfError` if the file is damaged.
    """
    image = ElfImage(data)
    original = _read_relevant(image)
    cut = _find_cut(image)
    if cut is None:
        return data
    try:
        stripped = _remove(image, cut)
        return stripped if _read_relevant(ElfImage(stripped)) == original else data
    except DamagedElfError:  # the original is not damaged, it was read completely above; only the cut is impossible
        return data


def _read_relevant(image: ElfImage) -> tuple[Dynamic, dict[bytes, bytes]]:
    """Read all that auditwheel may look at."""
    found = {name: image.find_section(name) for name in _READ_BY_SECTION}
    sections = {name: bytes(image.section_bytes(section)) for name, section in found.items() if section}
    return read_dynamic(image), sections


def _find_cut(image: ElfImage) -> Cut | None:
    """Find the device code of a 64-bit file, in whole pages: segments behind it must keep their offset in a page."""
    section = image.find_section(FATBIN)
    if section is None or not image.layout.is_64:
        return None
    page = max((row[7] for row in _read_tables(image)[1] if row[0] == PT_LOAD), default=1) or 1
    rest = section.size % page
    end = section.offset + section.size - rest
    return Cut(section.offset, end, rest) if end > section.offset else None


def _read_tables(image: ElfImage) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return the fields of the header and the rows of the program header table."""
    fields = list(image.unpack(image.layout.header, _HEADER_AT))
    return fields, list(image.unpack_table(image.layout.segment, fields[_SEGMENTS_AT], len(image.segments)))


def _remove(image: ElfImage, cut: Cut) -> memoryview:
    """Return the file without the cut, with adapted header, segments and sections."""
    layout, (fields, segments) = image.layout, _read_tables(image)
    count = sum(1 for _ in image.sections())
    sections = image.unpack_table(layout.section, fields[_SECTIONS_AT], count)  # an iterator: there may be millions
    image.bytes_at(cut.start, cut.size + cut.rest)
    cut.move_whole(0, _HEADER_AT + layout.header.size)
    fields[_SEGMENTS_AT] = cut.move_whole(fields[_SEGMENTS_AT], len(segments) * layout.segment.size)
    fields[_SECTIONS_AT] = cut.move_whole(fields[_SECTIONS_AT], count * layout.section.size)
    stripped = bytearray(image.data[: cut.start])
    stripped += bytes(cut.rest)
    stripped += image.data[cut.end + cut.rest :]
    layout.header.pack_into(stripped, _HEADER_AT, *fields)
    for number, (kind, flags, offset, address, physical, size, *rest) in enumerate(segments):
        place = fields[_SEGMENTS_AT] + number * layout.segment.size
        moved, left = cut.move(offset, size)
        layout.segment.pack_into(stripped, place, kind, flags, moved, address, physical, left, *rest)
    for number, (name, kind, flags, address, offset, size, *rest) in enumerate(sections):
        place = fields[_SECTIONS_AT] + number * layout.section.size
        layout.section.pack_into(stripped, place, name, kind, flags, address, *cut.move(offset, size), *rest)
    return memoryview(stripped)
