"""Header, sections and segments of ELF files."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import elf_bytes as e
from elf_bytes import ElfBytes, with_sections
from wheelfactory.wheel.elf.image import MAX_NAME_SIZE, DamagedElfError, ElfImage, StringTable

MORE_THAN_FIT = 0xFFFF


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no ELF magic"),
        (b"\x7fELF\x01\x01" + bytes(100), "not a 64-bit little-endian ELF file"),  # 32 bits
        (b"\x7fELF\x02\x02" + bytes(100), "not a 64-bit little-endian ELF file"),  # byte order
        (b"\x7fELF", "not a 64-bit little-endian ELF file"),  # magic alone
        (e.header()[:-1], "48 bytes at 16 are outside the file"),  # half a header
    ],
)
def test_a_file_that_is_not_elf_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(DamagedElfError, match=what):
        ElfImage(data)


def test_a_section_by_its_name() -> None:
    image = ElfImage(with_sections((".text", b"code"), (".hip_fatbin.more", b"no"), (".hip_fatbin", b"device")))

    section = image.find_section(b".hip_fatbin")

    assert section
    assert bytes(image.section_bytes(section)) == b"device"
    assert image.find_section(b".hip") is None
    assert image.find_section(b"hip_fatbin") is None


def test_more_sections_than_the_header_can_count() -> None:
    data = with_sections((".hip_fatbin", b"device"))
    count, names, first = 3, 2, e.section(0, 0, 0)
    counted = e.section(0, 0, count, link=names)

    found = ElfImage(
        _with_header(data.replace(first, counted), {"section count": 0, "names": MORE_THAN_FIT})
    ).find_section(b".hip_fatbin")

    assert found and found.size == len(b"device")


def _with_header(data: bytes, changes: dict[str, int]) -> bytes:
    """Change the header's fields about sections."""
    (at,) = struct.unpack_from("<Q", data, 40)
    return e.header(**{"sections": at, "section count": 3, "names": 2, **changes}) + data[64:]


def test_no_section_has_a_name() -> None:
    data = with_sections((".hip_fatbin", b"device"))
    for changes in ({"sections": 0}, {"names": 9}, {"names": 0}):  # stripped, no such section, one without names
        assert ElfImage(_with_header(data, changes)).find_section(b".hip_fatbin") is None


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"section size": 40}, "section headers of 40 bytes"),
        ({"sections": 1 << 62}, "are outside the file"),
        ({"section count": 0xFF00}, "are outside the file"),
        ({"section count": 0, "sections": 1 << 40}, "are outside the file"),
    ],
)
def test_damaged_section_tables_are_refused(changes: dict[str, int], what: str) -> None:
    data = with_sections((".hip_fatbin", b"device"))

    with pytest.raises(DamagedElfError, match=what):
        ElfImage(_with_header(data, changes)).find_section(b".hip_fatbin")


def test_a_section_outside_the_file() -> None:
    data = with_sections((".hip_fatbin", b"device"))
    image = ElfImage(data.replace(struct.pack("<QQI", 64, 6, 0), struct.pack("<QQI", 64, 1 << 40, 0)))
    section = image.find_section(b".hip_fatbin")
    assert section

    with pytest.raises(DamagedElfError, match="1099511627776 bytes at 64 are outside the file"):
        image.section_bytes(section)


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ({"segment size": 32}, "program headers of 32 bytes"),
        ({"segments": 1 << 63}, "are outside the file"),
        ({"segment count": 0xFFFE}, "are outside the file"),
        ({"segment count": 0xFFFF}, "more than 65,534 segments"),
    ],
)
def test_only_loaded_bytes_have_an_address_and_damaged_segment_tables_are_refused(
    header: dict[str, Any], what: str
) -> None:
    with pytest.raises(DamagedElfError, match=what):
        ElfImage(ElfBytes().build(**header)).file_offset(e.BASE)
    data = bytearray(ElfBytes().build())
    data[64:68] = e.numbers("I", 6)  # a segment that only tells where the table of segments is
    with pytest.raises(DamagedElfError, match="address 0x10000 is in no segment"):
        ElfImage(bytes(data)).file_offset(e.BASE)


def test_a_name_may_be_long_but_not_endless() -> None:
    names = StringTable(memoryview(b"x" * (MAX_NAME_SIZE + 9) + b"\0"))

    assert len(names.read(10)) == MAX_NAME_SIZE - 1
    with pytest.raises(DamagedElfError, match="no name at 9 "):
        names.read(9)


def test_names_that_share_their_bytes_are_limited_and_asking_again_is_free() -> None:
    names = StringTable(memoryview(b"x" * 60_000 + b"\0"))
    for _ in range(100):
        assert names.read(0)
    for offset in range(1, 5):
        names.read(offset)

    with pytest.raises(DamagedElfError, match="the names are more than 4 times as long as the string table"):
        names.read(6)
