"""Hostile ELF files and bundles: reading or refusing them takes limited time and memory."""

from __future__ import annotations

import struct
import zlib

import pytest
import zstandard

import elf_bytes as e
from elf_bytes import GLOBAL, ElfBytes, with_sections
from elf_factory import packed
from resource_limits import run_limited
from wheelfactory.wheel.elf import dynamic, offload
from wheelfactory.wheel.elf.offload import read_bundles
from wheelfactory.wheel.elf.offload_package import PACKAGE_MAGIC, read_packages
from wheelfactory.wheel.elf.read import read_elf

pytestmark = pytest.mark.slow

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


def of_elf(data: bytes, megabytes: int = 256) -> str:
    return run_limited(lambda: read_elf("x.so", data), megabytes=megabytes)


def of_bundles(data: bytes, megabytes: int = 256) -> str:
    return run_limited(lambda: read_bundles(memoryview(data)), megabytes=megabytes)


def test_chains_of_needed_versions_that_merge() -> None:
    libraries, versions = 20_000, 20_000
    file = ElfBytes()
    name = file.strings.add("x")
    ends = range(16 * libraries, 0, -16)  # from each library to the first version, which all of them share
    heads = b"".join(e.numbers("HHIII", 1, 1, name, end, 16) for end in ends)
    chain = e.numbers("IHHII", 0, 0, 2, name, 16) * versions + e.numbers("IHHII", 0, 0, 2, name, 0)
    file.table(e.VERNEED, heads + chain)

    assert of_elf(file.build()) == "DamagedElfError: more needed versions than a symbol can name"


def test_needed_versions_one_byte_apart() -> None:
    file = ElfBytes()
    file.table(e.VERNEED, b"\0\0\0\1" * 2_000_000)

    assert of_elf(file.build()).startswith("DamagedElfError: ")


def test_an_endless_chain_of_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "_MAX_SYMBOLS", 1 << 10)
    file = ElfBytes()
    file.symbols()
    file.gnu_hash(1, [2] * 5_000)

    assert of_elf(file.build()) == "DamagedElfError: more than 1024 dynamic symbols"


def test_a_chain_of_symbols_out_of_the_file() -> None:
    file = ElfBytes()
    file.symbols()
    file.gnu_hash(1, [], buckets=[0xFFFFFFFF])

    assert of_elf(file.build()).endswith("are outside the file")


@pytest.mark.parametrize("count", [3_000_000, 0xFFFFFFFF])
def test_more_than_the_maximum_number_of_symbols(count: int) -> None:
    file = ElfBytes()
    file.symbols()
    file.hash(1)
    file.table(e.HASH, e.numbers("II", 1, count))

    assert of_elf(file.build()) == f"DamagedElfError: {count} dynamic symbols"


def test_symbols_of_one_name_take_no_memory() -> None:
    file = ElfBytes()
    name = file.strings.add("puts")
    file.table(e.SYMTAB, e.symbol(name) * 500_000)
    file.hash(1)
    file.rows[-1] = (e.HASH, file.add(e.numbers("II", 1, 500_000)))

    assert of_elf(file.build(), megabytes=64) == "nothing"


def test_sections_whose_names_never_end() -> None:
    count, names = 65_000, b"x" * 10_000_000
    rows = [e.section(place, 0, 0) for place in range(count - 1)] + [e.section(0, 64, len(names))]
    header = e.header(**{"sections": 64 + len(names), "section count": count, "names": count - 1})

    assert of_elf(header + names + b"".join(rows)) == "nothing"


def test_millions_of_sections_take_no_memory() -> None:
    count = 200_000
    header = e.header(**{"sections": 64, "section count": 0, "names": 1})
    data = header + e.section(0, 0, count) + e.section(7, 0, 0) * (count - 1)

    assert of_elf(data, megabytes=16) == "nothing"


def test_segments_that_are_all_the_same_table() -> None:
    body = e.row(e.NEEDED, 0) * 100_000
    count = 60_000
    at = 64 + 56 * count
    segment = e.segment(e.DYNAMIC, at, len(body), e.BASE)
    data = e.header(**{"segments": 64, "segment count": count}) + segment * count + body

    assert of_elf(data) == f"DamagedElfError: {count} dynamic tables"


def test_a_dynamic_table_of_millions() -> None:
    file = ElfBytes()
    file.rows += [(e.NEEDED, 0)] * 500_000

    assert of_elf(file.build()) == "DamagedElfError: no end mark in 65536 rows of the dynamic table"


def test_many_overlapping_runpaths() -> None:
    file = ElfBytes()
    at = file.strings.add(":" * 60_000)
    file.rows += [(e.RUNPATH, at + place) for place in range(50_000)]

    assert of_elf(file.build(), megabytes=64) == "nothing"


def zeros(size: int, method: str) -> bytes:
    packer = zlib.compressobj(9) if method == "zlib" else zstandard.ZstdCompressor().compressobj()
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()


@pytest.mark.parametrize(("method", "number"), [("zlib", 0), ("zstd", 1)])
def test_a_bomb_is_unpacked_only_until_the_first_error(method: str, number: int) -> None:
    body = zeros(1 << 27, method)
    data = b"CCOB" + struct.pack("<HHIQ", 1, number, 1 << 27, 0)

    assert of_bundles(data + body, megabytes=64).endswith("the unpacked data is not a bundle")


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_a_bomb_in_an_entry_is_refused(method: str) -> None:
    table = MAGIC + struct.pack("<QQQQ", 1, 56, 1 << 28, 0)
    packer = zlib.compressobj(9) if method == "zlib" else zstandard.ZstdCompressor().compressobj()
    body = packer.compress(table) + b"".join(packer.compress(bytes(1 << 20)) for _ in range(1 << 8)) + packer.flush()
    head = b"CCOB" + struct.pack("<HHQQQ", 3, ["zlib", "zstd"].index(method), 32 + len(body), 56 + (1 << 28), 0)

    assert of_bundles(head + body) == "DamagedElfError: the unpacked bundles are too large for their packed size"


def test_a_zstd_window_above_the_limit() -> None:
    frame = b"\x28\xb5\x2f\xfd" + bytes([0x00, 18 << 3]) + b"\x01\x00\x00"  # 256 MB, and an empty last block
    head = b"CCOB" + struct.pack("<HHQQQ", 3, 1, 32 + len(frame), 0, 0)

    assert of_bundles(head + frame).endswith("Frame requires too much memory for decoding")


def test_entries_read_one_by_one_out_of_a_large_piece() -> None:
    entries = 20_000
    ends = 32 + 25 * entries + (1 << 24)
    table = MAGIC + struct.pack("<Q", entries) + (struct.pack("<QQQ", ends, 0, 1) + b"x") * entries
    data = packed(table + bytes(1 << 24))

    assert of_bundles(data * 3) == "nothing"


def test_more_than_the_maximum_number_of_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "_MAX_BUNDLES", 100)
    bundles = (MAGIC + bytes(8)) * 101

    assert of_bundles(bundles[: -len(MAGIC) - 8]) == "nothing"
    assert of_bundles(bundles) == "DamagedElfError: more than 100 bundles"
    assert of_elf(with_sections((".hip_fatbin", bundles))) == "DamagedElfError: more than 100 bundles"


def test_entries_cost_as_much_of_the_limit_as_they_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "_MIN_LIMIT", 40_000)
    table = MAGIC + struct.pack("<Q", 50) + bytes(24) * 50

    assert of_bundles(packed(table) * 2) == "nothing"
    monkeypatch.setattr(offload, "_MAX_RATIO", 0)
    assert of_bundles(packed(table) * 3) == "DamagedElfError: the unpacked bundles are too large for their packed size"


def test_ids_with_expensive_backtracking() -> None:
    name = (b"-gfx1" * 60)[:250] + b"!"
    row = struct.pack("<QQQ", 0, 0, len(name)) + name
    data = MAGIC + struct.pack("<Q", 20_000) + row * 20_000

    assert of_bundles(data) == "nothing"


def test_a_large_gap_is_not_copied() -> None:
    gap = bytes(1 << 25)

    assert of_bundles(gap, megabytes=16) == "nothing"
    assert of_bundles(gap + b"x", megabytes=16).startswith("DamagedElfError: unknown content at 33554432")


def test_many_packed_bundles_that_do_not_say_their_length() -> None:
    data = packed(MAGIC + bytes(8), 1, "zlib") * 60_000

    assert of_bundles(data) == "nothing"


def of_packages(data: bytes, megabytes: int = 64) -> str:
    return run_limited(lambda: read_packages(memoryview(data)), megabytes=megabytes)


def test_offload_packages_with_as_many_entries_as_fit() -> None:
    count = 100_000
    data = PACKAGE_MAGIC + struct.pack("<IQQQ", 2, 32 + 40 * count, 32, count) + bytes(40 * count)

    assert of_packages(data).startswith("DamagedElfError: offload package at 0: 100000 entries in")
    one = PACKAGE_MAGIC + struct.pack("<IQQQ", 2, 72, 32, 1) + struct.pack("<HHIQQQQ", 0, 4, 0, 0, 0, 0, 0)
    assert of_packages(one * count) == "DamagedElfError: more than 4096 entries in the offload packages"


def test_offload_packages_whose_keys_are_all_the_same_long_text() -> None:
    count, keys = 4_000, 16
    texts_at = 32 + 40 * count + 16 * keys * 2
    rows = struct.pack("<QQQ", texts_at, texts_at, 1) * keys
    keys_at = texts_at + 256
    entries = struct.pack("<HHIQQQQ", 0, 4, 0, keys_at, keys, 0, 0) * count
    body = entries.ljust(texts_at - 32, b"\0") + b"x" * 255 + b"\0" + rows

    assert of_packages(PACKAGE_MAGIC + struct.pack("<IQQQ", 2, 32 + len(body), 32, count) + body) == "nothing"


def test_relocations_to_symbols_outside_every_table() -> None:
    file = ElfBytes()
    file.symbols(("away", GLOBAL, 0))
    file.relocations(e.RELA, e.RELASZ, [0xFFFFFFFF], True)

    assert of_elf(file.build()) == "DamagedElfError: 4294967296 dynamic symbols"
