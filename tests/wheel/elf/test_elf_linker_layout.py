"""The layout of a library: output of linkers has no fault, every other byte is one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

import pytest

from elf_factory import hip_bundle, library, section
from wheelfactory.wheel.elf.image import ElfImage
from wheelfactory.wheel.elf.linker_layout import find_layout_faults

FATBIN = section(hip_bundle("gfx90a", "gfx942"))
SOURCE = '#include <stdio.h>\nstatic int n = 3; __thread int t; void say(void) { printf("%d", n + t); }'
PROGRAM_HEADER, SECTION_HEADER = 56, 64


def layout_faults(data: bytes) -> list[tuple[str, str]]:
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
def test_output_of_a_linker_has_no_faults(flags: tuple[str, ...]) -> None:
    assert layout_faults(library(source=SOURCE, fatbin=FATBIN, needed=("libamdhip64.so.6",), flags=flags)) == []


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
    """Overwrite a number in the first row of a type; the header has the table's offset at `table`."""

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
    """Change one row of the dynamic table to AUDIT, which loads a library."""
    image = ElfImage(data)
    (segment,) = [one for one in image.segments if one.type == 2]
    changed = bytearray(data)
    struct.pack_into("<Q", changed, segment.offset, 0x6FFFFEFC)
    return bytes(changed)


def in_a_gap(data: bytes) -> bytes:
    """Write a byte between two sections, where the linker padded with zeros."""
    image = ElfImage(data)
    places = sorted((item.offset, item.size) for item in image.sections() if item.type != 8 and item.size)
    at = next(end for (offset, size), (following, _) in pairwise(places) if (end := offset + size) < following)
    return data[:at] + b"x" + data[at + 1 :]


UNLIKE_A_LINKER: list[tuple[Callable[[bytes], bytes], str, str]] = [
    (lambda data: data + b"evil", "every byte in one table", "4 bytes at"),  # bytes behind it
    (lambda data: data + bytes(1 << 20), "every byte in one table", "1,048,576 bytes"),  # zeros behind
    (in_a_gap, "every byte in one table", "bytes at"),  # a byte between sections
    (put("B", 7, 9), "System V or GNU", "010900"),  # another system
    (put("B", 12, 1), "System V or GNU", "01000000000001"),  # a byte where none is used
    (put("<H", 16, 2), "a shared library", "type 2"),  # a program
    (put("<H", 18, 183), "a shared library", "machine 183"),  # for another machine
    (put("<I", 48, 1), "without flags", "flags 0x1"),  # flags
    (put("<Q", 24, 1 << 40), "an entry point in code", "0x10000000000"),  # an entry outside
    (put_in_segment(4, "<I", 0, 3), "segment types", "type 0x3"),  # an interpreter
    (put_in_segment(0x6474E551, "<I", 4, 7), "not both", "flags 0x7"),  # a stack that is run
    (put_in_segment(1, "<I", 4, 7), "not both", "flags 0x7"),  # code that is written to
    (with_tag, "dynamic tags", "0x6ffffefc"),  # a library that looks on
    (put_in_row(40, SECTION_HEADER, 3, "<Q", 24, 0), "every byte in one table", "an overlap"),  # overlap
]


def test_any_other_layout_is_a_fault(good: bytes) -> None:
    for change, expected, found in UNLIKE_A_LINKER:
        faults = layout_faults(change(good))

        assert any(expected in wanted and found in other for wanted, other in faults), faults


def test_a_section_that_nothing_loads_is_named_unless_linkers_write_it() -> None:
    kept = '__asm__(".section .evil,\\"\\",@progbits\\n.zero 4096\\n.section .comment\\n.zero 8\\n.text");'
    assert layout_faults(library(source=kept)) == [
        ("only known sections that are not loaded", "'.evil' of 4,096 bytes")
    ]
