"""What stands around the code of a library: a linker's own files have nothing strange, and each other byte is named."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

import pytest

from elf_factory import hip_bundle, library, object_file, section
from wheelfactory.wheel.elf.image import ElfImage
from wheelfactory.wheel.elf.linker_layout import find_layout_faults

FATBIN = section(hip_bundle("gfx90a", "gfx942"))
SOURCE = '#include <stdio.h>\nstatic int n = 3; __thread int t; void say(void) { printf("%d", n + t); }'
PROGRAM_HEADER, SECTION_HEADER = 56, 64


def strange(data: bytes) -> list[tuple[str, str]]:
    return list(find_layout_faults(ElfImage(data)))


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="as it comes"),
        pytest.param(("-g",), id="with debug information"),
        pytest.param(("-s",), id="stripped"),
        pytest.param(("-Wl,-z,noseparate-code",), id="code beside what is read"),
        pytest.param(("-Wl,-z,now", "-Wl,-z,relro"), id="bound at once"),
        pytest.param(("-Wl,--hash-style=both", "-Wl,-rpath,$ORIGIN"), id="two hash tables and a path"),
        pytest.param(("-fuse-ld=gold",), id="gold"),
    ],
)
def test_what_a_linker_writes_is_not_strange(flags: tuple[str, ...]) -> None:
    assert strange(library(source=SOURCE, fatbin=FATBIN, needed=("libamdhip64.so.6",), flags=flags)) == []


@pytest.fixture(scope="module")
def good() -> bytes:
    return library(source=SOURCE, fatbin=FATBIN)


def put(form: str, at: int, value: int) -> Callable[[bytes], bytes]:
    """Write a number over the header."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        struct.pack_into(form, changed, at, value)
        return bytes(changed)

    return change


def put_in_row(table: int, row_size: int, kind: int, form: str, at: int, value: int) -> Callable[[bytes], bytes]:
    """Write a number over the first row of a type in a table; the header tells at `table` where that is."""

    def change(data: bytes) -> bytes:
        (start,) = struct.unpack_from("<Q", data, table)
        type_at = 0 if row_size == PROGRAM_HEADER else 4
        row = next(
            place
            for place in range(start, len(data), row_size)
            if struct.unpack_from("<I", data, place + type_at)[0] == kind
        )
        return put(form, row + at, value)(data)

    return change


def put_in_segment(kind: int, form: str, at: int, value: int) -> Callable[[bytes], bytes]:
    return put_in_row(32, PROGRAM_HEADER, kind, form, at, value)


def with_tag(data: bytes) -> bytes:
    """The library with FLAGS_1 or another row of its dynamic table turned into AUDIT, which loads a library."""
    image = ElfImage(data)
    (segment,) = [one for one in image.segments if one.type == 2]
    changed = bytearray(data)
    struct.pack_into("<Q", changed, segment.offset, 0x6FFFFEFC)
    return bytes(changed)


def in_a_gap(data: bytes) -> bytes:
    """A byte between two sections, where the linker filled up with zeros."""
    image = ElfImage(data)
    places = sorted((item.offset, item.size) for item in image.sections() if item.type != 8 and item.size)
    at = next(end for (offset, size), (following, _) in pairwise(places) if (end := offset + size) < following)
    return data[:at] + b"x" + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        pytest.param(lambda data: data + b"evil", "every byte in a table", "4 bytes at", id="bytes behind it"),
        pytest.param(lambda data: data + bytes(1 << 20), "every byte in a table", "1,048,576 bytes", id="zeros behind"),
        pytest.param(in_a_gap, "every byte in a table", "bytes at", id="a byte between sections"),
        pytest.param(put("B", 7, 9), "System V or GNU", "010900", id="another system"),
        pytest.param(put("B", 12, 1), "System V or GNU", "01000000000001", id="a byte where none is used"),
        pytest.param(put("<H", 16, 2), "a shared library", "type 2", id="a program"),
        pytest.param(put("<H", 18, 183), "a shared library", "machine 183", id="for another machine"),
        pytest.param(put("<I", 48, 1), "without flags", "flags 0x1", id="flags"),
        pytest.param(put("<Q", 24, 1 << 40), "an entry point in code", "0x10000000000", id="an entry outside"),
        pytest.param(put_in_segment(4, "<I", 0, 3), "segment types", "type 0x3", id="an interpreter"),
        pytest.param(put_in_segment(0x6474E551, "<I", 4, 7), "not both", "flags 0x7", id="a stack that is run"),
        pytest.param(put_in_segment(1, "<I", 4, 7), "not both", "flags 0x7", id="code that is written to"),
        pytest.param(with_tag, "dynamic tags", "0x6ffffefc", id="a library that looks on"),
        pytest.param(
            put_in_row(40, SECTION_HEADER, 3, "<Q", 24, 0), "sections that do not overlap", "an overlap", id="overlap"
        ),
    ],
)
def test_what_no_linker_writes_is_named(
    good: bytes, change: Callable[[bytes], bytes], expected: str, found: str
) -> None:
    said = strange(change(good))

    assert any(expected in wanted and found in other for wanted, other in said), said


def test_a_section_that_nothing_loads_is_named_unless_linkers_write_it() -> None:
    kept = '__asm__(".section .evil,\\"\\",@progbits\\n.zero 4096\\n.section .comment\\n.zero 8\\n.text");'
    assert strange(library(source=kept)) == [("only known sections that are not loaded", "'.evil' of 4,096 bytes")]


def test_an_object_file_is_no_library() -> None:
    assert strange(object_file(fatbin=FATBIN)) == [("a shared library for x86-64", "a file of type 1 for machine 62")]
