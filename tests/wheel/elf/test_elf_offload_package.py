"""Offload packages: device code that waits for a device link is read in both versions, or refused."""

from __future__ import annotations

import struct

import pytest

from elf_factory import library, package, shell, with_section
from wheelfactory.wheel.elf import offload_package
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory.wheel.elf.offload import Bundle, sum_device_code
from wheelfactory.wheel.elf.offload_package import read_packages
from wheelfactory.wheel.elf.read import ElfFile, read_elf

BITCODE = b"BC\xc0\xde" + b"*" * 99
TWO = package(("gfx90a", BITCODE), ("gfx942:xnack-", shell("gfx942")))
ONE = package(("gfx942", BITCODE), version=1)
# offsets in these packages: of the entries, and in an entry of keys and image
ENTRY, KEYS, KEY_COUNT, IMAGE, IMAGE_SIZE = 32, 8, 16, 24, 32


def read(data: bytes) -> tuple[Bundle, ...]:
    return read_packages(memoryview(data))


def changed(data: bytes, form: str, at: int, value: int) -> bytes:
    made = bytearray(data)
    struct.pack_into(form, made, at, value)
    return bytes(made)


def test_a_package_has_an_image_for_each_arch() -> None:
    (found,) = read(TWO)

    assert (found.form, found.offset, found.size) == ("package v2", 0, len(TWO))
    assert [(entry.id, str(entry.target), entry.size) for entry in found.entries] == [
        ("hip-amdgcn-amd-amdhsa--gfx90a", "gfx90a", len(BITCODE)),
        ("hip-amdgcn-amd-amdhsa--gfx942:xnack-", "gfx942:xnack-", 256),
    ]


def test_version_1_has_a_package_for_each_arch_one_behind_the_other() -> None:
    found = read(package(("gfx90a", BITCODE), version=1) + bytes(16) + ONE)

    assert [item.form for item in found] == ["package v1", "package v1"]
    assert {target: code.size for target, code in sum_device_code(found).items()} == {"gfx90a": 103, "gfx942": 103}
    (other,) = read(package(("gfx942", BITCODE), kind=1))
    assert other.entries[0].id == "openmp-amdgcn-amd-amdhsa--gfx942", "code of another language"


DAMAGED = [
    (b"x" + ONE, "unknown content"),  # another magic
    (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(64), "unknown content"),  # a bundle
    (changed(TWO, "<I", 4, 3), "unknown content or version"),
    (TWO[:20], "offload package at 0: "),  # half a header
    (TWO[:-1], f"2 entries in {len(TWO)} bytes, of {len(TWO) - 1} in the section"),
    (changed(TWO, "<Q", 8, 0), "2 entries in 0 bytes"),
    (changed(TWO, "<Q", 16, 1 << 62), "are outside the package"),  # entries
    (changed(TWO, "<Q", 24, 1 << 63), "entries in"),
    (changed(TWO, "<H", ENTRY + 2, 64), "64"),  # a language
    (changed(TWO, "<Q", ENTRY + KEYS, len(TWO)), "are outside the package"),
    (changed(TWO, "<Q", ENTRY + KEY_COUNT, 1 << 60), "keys"),
    (changed(TWO, "<Q", ENTRY + IMAGE, len(TWO)), "are outside the package"),
    (changed(TWO, "<Q", ENTRY + IMAGE_SIZE, 1 << 63), "are outside the package"),
    (changed(TWO, "<Q", ENTRY + 80, len(TWO)), "no text at"),  # outside
    (package(("gfx942" * 100, BITCODE)), "no text at"),  # without end
]


def test_a_damaged_or_unknown_package_is_refused() -> None:
    for data, message in DAMAGED:
        with pytest.raises(DamagedElfError, match=message):
            read(data)


def test_a_section_has_a_limited_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_package, "_MAX_ENTRIES", 4)

    assert len(read(TWO * 2)) == 2
    with pytest.raises(DamagedElfError, match="more than 4 entries"):
        read(TWO * 3)


# in a file


def read_library(name: str, content: bytes) -> ElfFile:
    return read_elf("library.so", library(source=with_section(name, content), flags=("-nostdlib",)))


def test_unknown_content_of_the_section_is_refused_and_not_counted_as_no_device_code() -> None:
    with pytest.raises(DamagedElfError, match="unknown content"):
        read_library(".llvm.offloading", b"something new" * 9)


def test_kernels_whose_device_code_a_linker_dropped_are_counted() -> None:
    assert read_library("llvm_offload_entries", bytes(3 * 56)).relocatable_kernels == 3
    assert read_library("llvm_offload_entries_0123abcd", bytes(56)).relocatable_kernels == 0
