"""Header, sections and segments of ELF files of every class and byte order."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import elf_bytes as e
from elf_bytes import ElfBytes, Form, with_sections
from wheelfactory.wheel.elf.image import MAX_NAME_SIZE, DamagedElfError, ElfImage, Segment, StringTable

FORMS = [Form(wide, order) for wide in (True, False) for order in "<>"]
EVERY_FORM = pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{'64' if form.wide else '32'}{form.order}")
MORE_THAN_FIT = 0xFFFF


@EVERY_FORM
def test_header_fields(form: Form) -> None:
    image = ElfImage(form.header(type=3, machine=224, flags=0x54C))

    assert (image.type, image.machine, image.flags) == (3, 224, 0x54C)
    assert (image.layout.is_64, image.layout.byte_order) == (form.wide, form.order)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        pytest.param(b"", "no ELF magic", id="nothing"),
        pytest.param(b"PK\x03\x04" + bytes(100), "no ELF magic", id="another file"),
        pytest.param(b"\x7fELF\x03\x01" + bytes(100), "unknown ELF class or byte order", id="class"),
        pytest.param(b"\x7fELF\x02\x00" + bytes(100), "unknown ELF class or byte order", id="byte order"),
        pytest.param(b"\x7fELF", "unknown ELF class or byte order", id="magic alone"),
        pytest.param(Form().header()[:-1], "48 bytes at 16 are outside the file", id="half a header"),
    ],
)
def test_a_file_that_is_not_elf_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(DamagedElfError, match=what):
        ElfImage(data)


@EVERY_FORM
def test_segments_and_the_addresses_in_them(form: Form) -> None:
    data = ElfBytes(form).build()
    image = ElfImage(data)

    assert image.segments[0] == Segment(type=1, flags=4, offset=0, address=e.BASE, file_size=len(data))
    assert image.file_offset(e.BASE) == 0
    assert image.file_offset(e.BASE + len(data) - 1) == len(data) - 1
    for outside in (e.BASE - 1, e.BASE + len(data)):
        with pytest.raises(DamagedElfError, match=f"address {outside:#x} is in no segment"):
            image.file_offset(outside)


def test_unloaded_bytes_have_no_address() -> None:
    data = bytearray(ElfBytes().build())
    data[64:68] = Form().numbers("I", 6)  # a segment that only tells where the table of segments is

    with pytest.raises(DamagedElfError, match="address 0x10000 is in no segment"):
        ElfImage(data=bytes(data)).file_offset(e.BASE)


@EVERY_FORM
def test_a_section_by_its_name(form: Form) -> None:
    image = ElfImage(with_sections(form, (".text", b"code"), (".hip_fatbin.more", b"no"), (".hip_fatbin", b"device")))

    section = image.find_section(b".hip_fatbin")

    assert section
    assert bytes(image.section_bytes(section)) == b"device"
    assert image.find_section(b".hip") is None
    assert image.find_section(b"hip_fatbin") is None


@EVERY_FORM
def test_more_sections_than_the_header_can_count(form: Form) -> None:
    data = with_sections(form, (".hip_fatbin", b"device"))
    count, names, first = 3, 2, form.section(0, 0, 0)
    counted = form.section(0, 0, count, link=names)

    found = ElfImage(
        _with_header(form, data.replace(first, counted), {"section count": 0, "names": MORE_THAN_FIT})
    ).find_section(b".hip_fatbin")

    assert found and found.size == len(b"device")


def _with_header(form: Form, data: bytes, changes: dict[str, int]) -> bytes:
    """Change the header's fields about sections."""
    size = 64 if form.wide else 52
    _, _, _, _, _, at, *_ = struct.unpack_from(form.order + ("HHIQQQ" if form.wide else "HHIIII"), data, 16)
    return form.header(**{"sections": at, "section count": 3, "names": 2, **changes}) + data[size:]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"sections": 0}, id="stripped"),
        pytest.param({"names": 9}, id="no section with names"),
        pytest.param({"names": 0}, id="names in a section without any"),
    ],
)
def test_no_section_has_a_name(changes: dict[str, int]) -> None:
    data = with_sections(Form(), (".hip_fatbin", b"device"))

    assert ElfImage(_with_header(Form(), data, changes)).find_section(b".hip_fatbin") is None


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        pytest.param({"section size": 40}, "section headers of 40 bytes", id="size of a section header"),
        pytest.param({"sections": 1 << 62}, "are outside the file", id="sections elsewhere"),
        pytest.param({"section count": 0xFF00}, "are outside the file", id="too many sections"),
        pytest.param({"section count": 0, "sections": 1 << 40}, "are outside the file", id="counted elsewhere"),
    ],
)
def test_damaged_section_tables_are_refused(changes: dict[str, int], what: str) -> None:
    data = with_sections(Form(), (".hip_fatbin", b"device"))

    with pytest.raises(DamagedElfError, match=what):
        ElfImage(_with_header(Form(), data, changes)).find_section(b".hip_fatbin")


def test_a_section_outside_the_file() -> None:
    data = with_sections(Form(), (".hip_fatbin", b"device"))
    image = ElfImage(data.replace(struct.pack("<QQI", 64, 6, 0), struct.pack("<QQI", 64, 1 << 40, 0)))
    section = image.find_section(b".hip_fatbin")
    assert section

    with pytest.raises(DamagedElfError, match="1099511627776 bytes at 64 are outside the file"):
        image.section_bytes(section)


@pytest.mark.parametrize(
    ("header", "what"),
    [
        pytest.param({"segment size": 32}, "program headers of 32 bytes", id="size of a program header"),
        pytest.param({"segments": 1 << 63}, "are outside the file", id="segments elsewhere"),
        pytest.param({"segment count": 0xFFFE}, "are outside the file", id="too many segments"),
        pytest.param({"segment count": 0xFFFF}, "more than 65,534 segments", id="more than a library has"),
    ],
)
def test_damaged_segment_tables_are_refused(header: dict[str, int], what: str) -> None:
    given: dict[str, Any] = dict(header)
    image = ElfImage(ElfBytes().build(**given))

    with pytest.raises(DamagedElfError, match=what):
        image.file_offset(e.BASE)


def test_a_file_without_segments_may_say_any_size_of_them() -> None:
    assert ElfImage(Form().header(**{"segment size": 0})).segments == ()


def test_names_end_at_a_zero_byte() -> None:
    names = StringTable(memoryview(b"\0libm.so.6\0\xff\0open"))

    assert [names.read(0), names.read(1), names.read(4), names.read(11)] == ["", "libm.so.6", "m.so.6", "\\xff"]
    for nowhere in (13, 17, 1 << 64):
        with pytest.raises(DamagedElfError, match=f"no name at {nowhere} of the string table"):
            names.read(nowhere)


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
