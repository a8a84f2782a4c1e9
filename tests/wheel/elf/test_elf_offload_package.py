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
    assert [(entry.id, str(entry.target), entry.size, entry.arch) for entry in found.entries] == [
        ("hip-amdgcn-amd-amdhsa--gfx90a", "gfx90a", len(BITCODE), None),  # bitcode does not say its arch
        ("hip-amdgcn-amd-amdhsa--gfx942:xnack-", "gfx942:xnack-", 256, "gfx942"),
    ]


def test_version_1_has_a_package_for_each_arch_one_behind_the_other() -> None:
    found = read(package(("gfx90a", BITCODE), version=1) + bytes(16) + ONE)

    assert [item.form for item in found] == ["package v1", "package v1"]
    assert {target: code.size for target, code in sum_device_code(found).items()} == {"gfx90a": 103, "gfx942": 103}


def test_code_of_other_languages_is_named_by_them() -> None:
    (found,) = read(package(("gfx942", BITCODE), kind=1))

    assert found.entries[0].id == "openmp-amdgcn-amd-amdhsa--gfx942"


DAMAGED: dict[str, tuple[bytes, str]] = {
    "another magic": (b"x" + ONE, "unknown content"),
    "a bundle": (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(64), "unknown content"),
    "an unknown version": (changed(TWO, "<I", 4, 3), "unknown version 3"),
    "half a header": (TWO[:20], "offload package at 0: "),
    "a truncated package": (TWO[:-1], f"its {len(TWO)} bytes are outside the section"),
    "a size of nothing": (changed(TWO, "<Q", 8, 0), "its 0 bytes are outside"),
    "entries outside": (changed(TWO, "<Q", 16, 1 << 62), "are outside the package"),
    "no entries": (changed(TWO, "<Q", 24, 0), "0 entries"),
    "endless entries": (changed(TWO, "<Q", 24, 1 << 63), "entries"),
    "entries of another size": (changed(ONE, "<Q", 24, 48), "of 48 bytes"),
    "an unknown kind": (changed(TWO, "<H", ENTRY + 2, 64), "64"),
    "keys outside": (changed(TWO, "<Q", ENTRY + KEYS, len(TWO)), "are outside the package"),
    "endless keys": (changed(TWO, "<Q", ENTRY + KEY_COUNT, 1 << 60), "keys"),
    "an image outside": (changed(TWO, "<Q", ENTRY + IMAGE, len(TWO)), "are outside the package"),
    "an endless image": (changed(TWO, "<Q", ENTRY + IMAGE_SIZE, 1 << 63), "are outside the package"),
    "a text outside": (changed(TWO, "<Q", ENTRY + 80, len(TWO)), "no text at"),
    "a text without end": (package(("gfx942" * 100, BITCODE)), "no text at"),
    "images that share their bytes": (
        changed(package(("gfx90a", b"x" * 900), ("gfx942", b"x" * 900)), "<Q", ENTRY + IMAGE_SIZE, 1400),
        "its images overlap",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_unknown_package_is_refused(what: str) -> None:
    data, message = DAMAGED[what]

    with pytest.raises(DamagedElfError, match=message):
        read(data)


@pytest.mark.parametrize("at", [len(TWO) - 1, len(TWO) - 3])
def test_bytes_that_no_entry_has_must_be_zero(at: int) -> None:
    """They could hide device code."""
    short = changed(TWO, "<Q", ENTRY + 40 + IMAGE_SIZE, 200)
    assert short[at] != 0

    with pytest.raises(DamagedElfError, match="belong to no entry and are not zero"):
        read(short)


def test_a_section_has_a_limited_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_package, "_MAX_ENTRIES", 4)

    assert len(read(TWO * 2)) == 2
    with pytest.raises(DamagedElfError, match="more than 4 entries"):
        read(TWO * 3)


# in a file


def read_library(name: str, content: bytes) -> ElfFile:
    return read_elf("library.so", library(source=with_section(name, content), flags=("-nostdlib",)))


def test_packages_of_a_file_are_no_bundles() -> None:
    found = read_library(".llvm.offloading", TWO)

    assert (found.bundles, [item.form for item in found.packages]) == ((), ["package v2"])


def test_unknown_content_of_the_section_is_refused_and_not_counted_as_no_device_code() -> None:
    with pytest.raises(DamagedElfError, match="unknown content"):
        read_library(".llvm.offloading", b"something new")


def test_kernels_whose_device_code_a_linker_dropped_are_counted() -> None:
    assert read_library("llvm_offload_entries", bytes(3 * 56)).relocatable_kernels == 3
    assert read_library("llvm_offload_entries_0123abcd", bytes(56)).relocatable_kernels == 0
