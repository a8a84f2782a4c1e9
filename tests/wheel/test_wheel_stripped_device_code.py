"""A stripped library reads like the original one for auditwheel, or is not stripped at all."""

from __future__ import annotations

import contextlib
import hashlib
import io
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from elf_factory import library, object_file
from wheelfactory.wheel.elf.dynamic import read_dynamic
from wheelfactory.wheel.elf.image import DamagedElfError, ElfImage
from wheelfactory.wheel.stripped import strip_device_code

DEVICE = hashlib.shake_256(b"device code").digest(300_123)
PAGE = 4096

SOURCE = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
static int large[100000];
const char *text = "a pointer, so that there are relocations";
double value(double x, char *a) { return pow(x, strtod(a, 0)) + strlen(text); }
int *numbers(void) { return large; }
"""

PLACES = {
    "as GNU ld": "",
    "as lld": "SECTIONS { .hip_fatbin : ALIGN(4096) { *(.hip_fatbin) } } INSERT AFTER .rela.plt;",
    "before all": "SECTIONS { .hip_fatbin : ALIGN(4096) { *(.hip_fatbin) } } INSERT BEFORE .hash;",
}
"""Linker scripts for the place of the device code.

GNU ld puts it between code and data. lld puts all that is only read into the first segment: the dynamic tables, then
device code; code and data follow.
"""


def whole(*flags: str, device: bytes = DEVICE) -> bytes:
    return library(
        fatbin=device,
        needed=("libamdhip64.so.6", "libtorch.so"),
        soname="libwhole.so.1",
        runpath="$ORIGIN/lib",
        source=SOURCE,
        flags=("-lm", *flags),
    )


def placed(place: str, folder: Path) -> bytes:
    script = folder / "script"
    script.write_text(PLACES[place])
    return whole(*[f"-Wl,-T,{script}"] * bool(PLACES[place]))


@pytest.fixture(scope="module", params=["as GNU ld", "as lld"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with device code where one of the linkers puts it."""
    return placed(request.param, tmp_path_factory.mktemp("place"))


def strip(data: bytes) -> bytes:
    return bytes(strip_device_code(data))


def test_the_device_code_is_left_out(data: bytes) -> None:
    stripped = strip(data)

    assert len(stripped) == len(data) - len(DEVICE) // PAGE * PAGE
    assert DEVICE[:100] not in stripped
    assert DEVICE[-100:] not in stripped


def test_the_loader_reads_the_same_from_the_stripped_file(data: bytes) -> None:
    dynamic = read_dynamic(ElfImage(data))

    assert read_dynamic(ElfImage(strip(data))) == dynamic
    assert {"libamdhip64.so.6", "libtorch.so"} <= set(dynamic.needed)
    assert (dynamic.soname, dynamic.runpath) == ("libwhole.so.1", ("$ORIGIN/lib",))
    assert ("libm.so.6", "GLIBC_2.29") in dynamic.versions


def test_every_other_section_keeps_its_bytes_for_a_reader_that_goes_by_sections(data: bytes) -> None:
    """auditwheel reads with pyelftools."""

    def sections(data: bytes) -> dict[str, tuple[int, bytes]]:
        found = {item.name: (item["sh_addr"], item.data()) for item in ELFFile(io.BytesIO(data)).iter_sections()}
        assert found.pop(".hip_fatbin")
        return found

    assert sections(strip(data)) == sections(data)
    assert {".dynamic", ".dynsym", ".gnu.version_r", ".text", ".data", ".bss", ".symtab"} <= sections(data).keys()


def test_every_segment_keeps_its_offset_in_a_page(data: bytes) -> None:
    for item in ELFFile(io.BytesIO(strip(data))).iter_segments("PT_LOAD"):
        assert item["p_offset"] % item["p_align"] == item["p_vaddr"] % item["p_align"]


@pytest.mark.parametrize("size", [PAGE, PAGE + 1, 2 * PAGE - 1, 10 * PAGE])
def test_whole_pages_are_cut(size: int) -> None:
    data = whole(device=DEVICE[:size])

    assert len(strip(data)) == len(data) - size // PAGE * PAGE


def test_a_file_without_device_code_is_left_as_it_is() -> None:
    data = library(source=SOURCE, flags=("-lm",))

    assert strip_device_code(data) is data


def test_a_file_with_less_than_a_page_of_device_code_is_left_as_it_is() -> None:
    data = whole(device=DEVICE[: PAGE - 1])

    assert strip_device_code(data) is data


def test_an_object_file_is_cut_too() -> None:
    data = object_file(fatbin=DEVICE, source="int number(void) { return 1; }")

    assert len(strip(data)) < len(data) - len(DEVICE) + PAGE
    assert ELFFile(io.BytesIO(strip(data))).get_section_by_name(".symtab") is not None


def test_a_file_whose_dynamic_tables_lie_behind_the_device_code_is_left_as_it_is(tmp_path: Path) -> None:
    """The loader uses addresses; after the cut, other bytes of the same segment would be at this address."""
    data = placed("before all", tmp_path)

    assert strip_device_code(data) is data


def section_of(data: bytes, name: str) -> tuple[int, int, int]:
    """Return file offset of a section's row, and offset and size of the section."""
    file = ELFFile(io.BytesIO(data))
    index, found = file.get_section_index(name), file.get_section_by_name(name)
    assert index and found
    return file["e_shoff"] + index * file["e_shentsize"], found["sh_offset"], found["sh_size"]


def moved(data: bytes, name: str, offset: int, size: int) -> bytes:
    """Change offset and size in the row of a section."""
    copy = bytearray(data)
    struct.pack_into("<QQ", copy, section_of(data, name)[0] + 24, offset, size)
    return bytes(copy)


@pytest.mark.parametrize("name", [".comment", ".bss"])
@pytest.mark.parametrize("place", [8, len(DEVICE) // PAGE * PAGE - 8])
def test_a_section_that_overlaps_the_device_code_prevents_stripping(name: str, place: int) -> None:
    data = whole()
    _, device, _ = section_of(data, ".hip_fatbin")
    other = moved(data, name, device + place, 16)

    assert strip_device_code(other) is other


@pytest.mark.parametrize("name", [".dynamic", ".dynstr", ".dynsym", ".gnu.version_r"])
def test_a_section_that_auditwheel_reads_is_compared_although_the_loader_does_not_read_it(name: str) -> None:
    data = whole()
    _, device, size = section_of(data, ".hip_fatbin")
    other = moved(data, name, device - 16, size + 32)
    assert read_dynamic(ElfImage(other)) == read_dynamic(ElfImage(data))

    assert strip_device_code(other) is other


def test_a_section_that_ends_at_the_device_code_does_not_prevent_stripping() -> None:
    data = whole()
    _, device, _ = section_of(data, ".hip_fatbin")

    assert len(strip(moved(data, ".comment", device - 16, 16))) == len(strip(data))


def test_a_file_with_its_tables_in_the_device_code_is_left_as_it_is() -> None:
    data = whole()
    _, device, _ = section_of(data, ".hip_fatbin")

    for offset, size in ((device, len(data) - device), (0, 2 * PAGE)):
        other = moved(data, ".hip_fatbin", offset, size)
        assert strip_device_code(other) is other


def test_a_file_with_device_code_in_its_header_or_in_a_table_is_left_as_it_is() -> None:
    """An object file has no pages, so every byte could be cut."""
    data = object_file(fatbin=DEVICE[:100], source="int number(void) { return 1; }")
    table = ELFFile(io.BytesIO(data))["e_shoff"]

    for offset in (20, table + 70):
        other = moved(data, ".hip_fatbin", offset, 8)
        assert strip_device_code(other) is other


def test_device_code_outside_the_file_prevents_stripping() -> None:
    data = whole()
    other = moved(data, ".hip_fatbin", len(data) + PAGE, 2 * PAGE)

    assert strip_device_code(other) is other


@settings(max_examples=150)
@given(changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_stripped_or_an_error(changes: list[tuple[int, int]]) -> None:
    """Damage the first 1,500 bytes (header, segments, dynamic table) or the end (sections)."""
    data = bytearray(whole())
    for place, value in changes:
        data[place if place < 1500 else place - 4000 - 1] = value

    with contextlib.suppress(DamagedElfError):
        assert len(bytes(strip_device_code(bytes(data)))) <= len(data)


@pytest.mark.parametrize("length", [3, 63, 1000])
def test_a_damaged_file_is_an_error(length: int) -> None:
    with pytest.raises(DamagedElfError):
        strip_device_code(whole()[:length])
