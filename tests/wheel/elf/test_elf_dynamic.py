"""The dynamic table; damaged ones are refused."""

from __future__ import annotations

import pytest

import elf_bytes as e
from elf_bytes import GLOBAL, LOCAL, WEAK, ElfBytes
from wheelfactory.wheel.elf.dynamic import Dynamic, Symbol, read_dynamic
from wheelfactory.wheel.elf.image import DamagedElfError, ElfImage


def read(data: bytes) -> Dynamic:
    return read_dynamic(ElfImage(data))


def test_names_and_folders() -> None:
    file = ElfBytes()
    file.text(e.NEEDED, "libb.so.1")
    file.text(e.NEEDED, "liba.so.2")
    file.text(e.SONAME, "first.so")
    file.text(e.SONAME, "last.so")  # which the loader uses
    file.text(e.RPATH, "/old")
    file.text(e.RUNPATH, "/opt/a:$ORIGIN/b")

    found = read(file.build())

    assert found.needed == ("libb.so.1", "liba.so.2")
    assert (found.soname, found.runpath) == ("last.so", ("/old", "/opt/a", "$ORIGIN/b"))
    file.rows.insert(0, (0, 0))
    assert read(file.build()) == Dynamic(), "rows after the end mark are ignored"
    with pytest.raises(DamagedElfError, match=r"^no end mark in \d+ rows of the dynamic table$"):
        read(ElfBytes().build(end=False))


def test_a_file_without_dynamic_table() -> None:
    assert read(e.header()) == Dynamic()
    assert read(ElfBytes().build()) == Dynamic()


def test_a_file_of_debug_information_has_an_empty_table() -> None:
    data = bytearray(ElfBytes().build())
    size_of_segment = 64 + 56 + 32
    data[size_of_segment : size_of_segment + 8] = bytes(8)  # p_filesz: its table stayed in the file it is split from

    assert read(bytes(data)) == Dynamic()


def test_the_table_is_where_the_loader_maps_it() -> None:
    file = ElfBytes()
    file.text(e.SONAME, "libx.so")
    data = bytearray(file.build())
    offset_of_segment = 64 + 56 + 8
    data[offset_of_segment : offset_of_segment + 8] = bytes(8)  # p_offset, which the loader does not look at

    assert read(bytes(data)).soname == "libx.so"


def test_symbols() -> None:
    file = ElfBytes()
    twice = ("away", GLOBAL, 0), ("away", GLOBAL, 0)
    file.symbols(("here", GLOBAL, 7), *twice, ("maybe", WEAK, 0), ("soft", WEAK, 7), ("own", LOCAL, 7))
    assert read(file.build()) == Dynamic(), "nothing tells their number"
    file.hash(7)

    found = read(file.build())

    assert found.defined == {"here", "soft"}
    assert found.undefined == (Symbol("away", weak=False), Symbol("maybe", weak=True))


def test_a_symbol_without_a_name_is_none() -> None:
    file = ElfBytes()
    file.table(e.SYMTAB, e.symbol(0, LOCAL) + e.symbol(0, GLOBAL, 7) + e.symbol(0, GLOBAL))
    file.hash(3)
    assert read(file.build()) == Dynamic()


def test_versions_of_symbols() -> None:
    file = ElfBytes()
    file.symbols(("memcpy", GLOBAL, 0), ("sin", GLOBAL, 0), ("plain", GLOBAL, 0))
    file.hash(4)
    file.versions({"libc.so.6": [(2, "GLIBC_2.14"), (5, "GLIBC_2.34")], "libm.so.6": [(3, "GLIBC_2.2.5")]})
    file.table(e.VERSYM, e.numbers("4H", 0, 2, 0x8003, 1))  # the highest bit marks hidden versions

    found = read(file.build())

    assert found.undefined == (
        Symbol("memcpy", False, "libc.so.6", "GLIBC_2.14"),
        Symbol("plain", False),
        Symbol("sin", False, "libm.so.6", "GLIBC_2.2.5"),
    )
    assert found.versions == (("libc.so.6", "GLIBC_2.14"), ("libc.so.6", "GLIBC_2.34"), ("libm.so.6", "GLIBC_2.2.5"))


def test_needed_versions_are_read_despite_wrong_counts() -> None:
    file = ElfBytes()
    file.versions({"libc.so.6": [(2, "GLIBC_2.14"), (2, "GLIBC_2.99")]})
    data = file.build()
    counts = e.numbers("HH", 1, 2)
    assert data.count(counts) == 1

    found = read(data.replace(counts, e.numbers("HH", 1, 1)))

    assert found.versions == (("libc.so.6", "GLIBC_2.14"), ("libc.so.6", "GLIBC_2.99"))


@pytest.mark.parametrize(
    ("tag", "size", "kind"),
    [
        (e.RELA, e.RELASZ, e.RELA),
        (e.REL, e.RELSZ, e.REL),
        (e.JMPREL, e.PLTRELSZ, e.RELA),
        (e.JMPREL, e.PLTRELSZ, e.REL),
    ],
)
def test_symbols_that_only_a_relocation_names(tag: int, size: int, kind: int) -> None:
    file = ElfBytes()
    file.symbols(("away", GLOBAL, 0), ("further", GLOBAL, 0), ("behind", GLOBAL, 0))
    file.gnu_hash(1, [], buckets=[0])  # written by GNU ld for a library without exports
    file.relocations(tag, size, [2, 0, 1], kind == e.RELA)
    file.rows.append((e.PLTREL, kind))

    assert [item.name for item in read(file.build()).undefined] == ["away", "further"]


DAMAGED_TABLES: list[tuple[dict[int, int | None], str]] = [
    ({e.STRTAB: 5}, "address 0x5 is in no segment"),  # strings that are not loaded
    ({e.STRSZ: 1 << 40}, "are outside the file"),  # strings longer than the file
    ({e.STRSZ: 3}, "no name at"),  # a name behind the strings
    ({e.SONAME: 1 << 63}, "no name at"),  # a name nowhere
    ({e.SYMTAB: e.BASE + 10**6}, "is in no segment"),  # symbols that are not loaded
    ({e.HASH: e.BASE}, "are outside the file"),  # a count that is another number
    ({e.VERSYM: e.BASE - 1}, "is in no segment"),  # versions that are not loaded
    ({e.VERNEED: 5}, "address 0x5 is in no segment"),  # needed versions that are not loaded
    ({e.STRTAB: None}, "the dynamic table has no string table"),  # no strings
    ({e.RELA: None}, "relocations without an address or of an unknown kind"),  # relocations nowhere
    ({e.RELASZ: 1 << 62}, "are outside the file"),  # relocations longer than the file
    ({e.PLTREL: 99}, "relocations without an address or of an unknown kind"),  # relocations of another kind
]


def test_damaged_tables_are_refused() -> None:
    for changed, what in DAMAGED_TABLES:
        file = ElfBytes()
        file.text(e.SONAME, "libx.so")
        file.symbols(("away", GLOBAL, 0))
        file.hash(2)
        file.table(e.VERSYM, bytes(4))
        file.versions({"libc.so.6": [(2, "GLIBC_2.14")]})
        file.relocations(e.RELA, e.RELASZ, [1], True)
        file.relocations(e.JMPREL, e.PLTRELSZ, [1], True)
        file.rows.append((e.PLTREL, e.RELA))
        read(file.build())

        with pytest.raises(DamagedElfError, match=what):
            read(file.build(changed=changed))


def test_two_dynamic_tables() -> None:
    file = ElfBytes()
    data = bytearray(file.build())
    data[64:68] = e.numbers("I", e.DYNAMIC)

    with pytest.raises(DamagedElfError, match=r"^2 dynamic tables$"):
        read(bytes(data))
