"""`read_elf`: versions of glibc and libstdc++, bundles, and code objects."""

from __future__ import annotations

import pytest
from packaging.version import Version

from elf_bytes import ElfBytes
from elf_factory import library, with_section
from wheelfactory.wheel.elf.code_object import read_registered_names
from wheelfactory.wheel.elf.image import ElfImage
from wheelfactory.wheel.elf.read import ElfFile, read_elf


def needing(*versions: str) -> ElfFile:
    file = ElfBytes()
    file.versions({"libc.so.6": [(2 + place, name) for place, name in enumerate(versions)]})
    return read_elf("x.so", file.build())


@pytest.mark.parametrize(
    ("versions", "glibc", "glibcxx"),
    [
        (["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.4"], "2.34", None),
        (["GLIBC_2.2.5", "GLIBCXX_3.4.9", "GLIBCXX_3.4.29"], "2.2.5", "3.4.29"),
        (["GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "CXXABI_1.3"], None, None),
        (["GLIBC_2.17", "GLIBC_2.38rc1", "GLIBC_", "GLIBC_2.x", f"GLIBC_{'9' * 5000}"], "2.17", None),
        (["OTHER_2.17"], None, None),
    ],
)
def test_the_oldest_system_that_can_load_it(versions: list[str], glibc: str | None, glibcxx: str | None) -> None:
    found = needing(*versions)

    assert found.glibc == (Version(glibc) if glibc else None)
    assert found.glibcxx == (Version(glibcxx) if glibcxx else None)


def test_a_name_that_a_linker_put_behind_other_constants_is_found_if_device_code_has_it() -> None:
    source = with_section(".rodata", b"\1_Z3addPf\0\0_Z3mulPf\0")
    image = ElfImage(library(source=source, flags=("-nostdlib",)))

    assert read_registered_names(image) == {"_Z3mulPf"}
    assert read_registered_names(image, ["_Z3addPf", "_Z3subPf"]) == {"_Z3mulPf", "_Z3addPf"}
