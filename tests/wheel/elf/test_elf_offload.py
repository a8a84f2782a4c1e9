"""Offload bundles: entries of plain and compressed bundles; damaged bundles are refused."""

from __future__ import annotations

import struct
from hashlib import sha256

import pytest

from code_object_bytes import KERNELS, bundle, code_object
from elf_factory import HOST, hip_bundle, packed, shell
from wheelfactory.wheel.elf.code_object import Target
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory.wheel.elf.offload import Bundle, CodeObject, read_bundles

HIP = "hipv4-amdgcn-amd-amdhsa--"
FORMS = [(version, method) for version in (1, 2, 3) for method in ("zlib", "zstd")]
TWO = hip_bundle("gfx90a", "gfx942")


def read(data: bytes) -> tuple[Bundle, ...]:
    return read_bundles(memoryview(data))


def only(data: bytes) -> Bundle:
    (found,) = read(data)
    return found


def table(*places: tuple[int, int, str], count: int | None = None) -> bytes:
    """A plain bundle that ends after its table of entries."""
    rows = b"".join(struct.pack("<QQQ", at, size, len(name)) + name.encode() for at, size, name in places)
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(places) if count is None else count) + rows


def test_the_entries_of_a_bundle() -> None:
    code, text = code_object("gfx90a:xnack-"), b"no ELF file"
    found = only(bundle([(HOST, b""), (f"{HIP}gfx90a:xnack-", code), (f"{HIP}gfx942", text)]))

    whole, damaged, target = sha256(code).hexdigest(), sha256(text).hexdigest(), Target("gfx90a", ("xnack-",))
    assert found.entries == (
        CodeObject(HOST, None, 0),
        CodeObject(f"{HIP}gfx90a:xnack-", target, len(code), whole, tuple(sorted(KERNELS))),
        CodeObject(f"{HIP}gfx942", Target("gfx942"), 11, damaged, fault="no ELF magic"),
    )
    assert found.targets == {"gfx90a:xnack-", "gfx942"}


def test_an_empty_entry_is_not_code() -> None:
    found = only(bundle([(HOST, b""), (f"{HIP}gfx90a", b""), (f"{HIP}gfx942", code_object("gfx942"))]))

    assert [(entry.size > 0, entry.fault) for entry in found.entries] == [(False, ""), (False, ""), (True, "")]
    assert found.targets == {"gfx942"}


def test_a_bundle_ends_with_its_last_entry_in_any_order() -> None:
    one, two = shell(size=100), shell(size=200)
    at = len(table((0, 0, f"{HIP}gfx90a"), (0, 0, f"{HIP}gfx942")))
    data = table((at + 100, 200, f"{HIP}gfx90a"), (at, 100, f"{HIP}gfx942")) + one + two

    found = only(data + bytes(50))

    assert (found.form, found.size, found.unpacked_size) == ("plain", len(data), len(data))


@pytest.mark.parametrize(("version", "method"), FORMS)
def test_a_packed_bundle(version: int, method: str) -> None:
    data = packed(TWO, version, method)

    found = only(data)

    assert (found.form, found.size, found.unpacked_size) == (f"CCOB v{version} {method}", len(data), len(TWO))
    assert found.entries == only(TWO).entries


def test_a_section_of_many() -> None:
    packs = [packed(TWO, 1, "zlib"), packed(TWO + bytes(70_000), 2), bytes(7), packed(TWO, 1)]
    data = b"".join([bytes(16), TWO, *packs, TWO, table(), bytes(4096)])

    found = read(data)

    assert [item.form for item in found] == ["plain", "CCOB v1 zlib", "CCOB v2 zstd", "CCOB v1 zstd", *["plain"] * 2]
    assert [item.unpacked_size - len(TWO) for item in found[:5]] == [0, 0, 70_000, 0, 0]
    assert [item.targets for item in found] == [frozenset(["gfx90a", "gfx942"])] * 5 + [frozenset()]
    assert (read(b""), read(bytes(5000))) == ((), ())
    for item in found:
        assert only(data[item.offset : item.offset + item.size]).entries == item.entries


NO_PLAIN_BUNDLES: list[tuple[bytes, str]] = [
    (b"device", "unknown content at 0, where a bundle was expected"),  # another format
    (TWO + b"x" + TWO, "unknown content at"),  # something between two bundles
    (TWO + bytes(99) + b"x", "unknown content at"),  # something behind the last bundle
    (b"__CLANG_OFFLOAD_BUNDLE_", "unknown content at 0"),  # half a magic
    (TWO[:26], "bundle at 0: 6 bytes at 26 are outside the data"),  # no count
    (TWO[:40], "bundle at 0: 16 bytes at 40 are outside the data"),  # no table
    (TWO[:-1], "bundle at 0: .* are outside the data"),  # cut short
    (bytes(8) + TWO[:-1], "bundle at 8: .* are outside the data"),  # the message names the position of the bundle
    (table(count=5), "bundle at 0: 24 bytes at 32 are outside the data"),  # fewer entries than the header states
    (table(count=1 << 63), "too large for their packed size"),  # absurdly many entries
    (table((0, 5, HIP)), "the entry at 0 overlaps another"),  # an entry over the table
    (table((1 << 63, 5, HIP)), "are outside the data"),  # an entry elsewhere
    (table((100, 1 << 63, HIP)), "are outside the data|a code object of"),  # an entry without an end
    (table((200, 9, HIP), (208, 9, HIP)) + bytes(99), "the entry at 208 overlaps another"),  # overlap
    (table((200, 9, HIP), (200, 1 << 62, HIP)) + bytes(99), "overlaps another"),  # one place, two sizes
    (table((200, 0, "x" * 257)), "an id of 257 bytes"),  # an absurd id
    (TWO[:50] + b"\xff" * 8 + TWO[58:], "bundle at 0: "),  # an id without an end
]


def test_damaged_plain_bundles_are_refused() -> None:
    for data, what in NO_PLAIN_BUNDLES:
        with pytest.raises(DamagedElfError, match=what):
            read(data)


def with_header(version: int, method: int, *sizes: int, body: bytes = b"") -> bytes:
    form = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}.get(version, "<QQQ")
    return b"CCOB" + struct.pack("<HH", version, method) + struct.pack(form, *sizes) + body


NO_PACKED_BUNDLES: list[tuple[bytes, str]] = [
    (b"CCOB", "bundle at 0: .* requires a buffer"),  # magic alone
    (b"CCOB\x03\x00\x01\x00" + bytes(9), "bundle at 0: .* requires a buffer"),  # half a header
    (with_header(4, 1, 32, 0, 0), "unsupported compression: version 4, method 1"),  # version
    (with_header(0, 1, 32, 0, 0), "unsupported compression: version 0, method 1"),  # no version
    (with_header(3, 2, 32, 0, 0), "unsupported compression: version 3, method 2"),  # method
    (with_header(3, 1, 1 << 63, 0, 0), "9223372036854775808 bytes are outside the section"),  # total
    (with_header(3, 1, 31, 0, 0), "31 bytes are outside the section"),  # total below its header
    (with_header(3, 1, 32, 0, 0), "truncated"),  # empty body
    (with_header(3, 1, 40, 0, 0, body=b"no frame"), "bundle at 0: "),  # no zstd
    (with_header(1, 0, 0, 0, body=b"no stream"), "bundle at 0: "),  # no zlib
]


def test_damaged_compressed_bundles_are_refused() -> None:
    for data, what in NO_PACKED_BUNDLES:
        with pytest.raises(DamagedElfError, match=what):
            read(data)


@pytest.mark.parametrize(("version", "method"), FORMS)
def test_compressed_data_that_is_truncated_or_of_another_size_is_refused(version: int, method: str) -> None:
    data = packed(TWO, version, method)
    sizes = {2: struct.pack("<I", len(data) - 5), 3: struct.pack("<Q", len(data) - 5)}.get(version, b"")
    size_at = data.index(struct.pack("<I", len(TWO)), 8)

    with pytest.raises(DamagedElfError, match=r"bundle at 0: .*truncated"):
        read(data[:8] + sizes + data[8 + len(sizes) : -5])
    with pytest.raises(DamagedElfError, match=f"unpacks to {len(TWO)} bytes of .* but its header says {len(TWO) + 1}"):
        read(data[:size_at] + struct.pack("<I", len(TWO) + 1) + data[size_at + 4 :])


@pytest.mark.parametrize(("version", "size"), [(2, 4), (3, 8)])
def test_the_total_is_compared(version: int, size: int) -> None:
    data = packed(TWO, version)
    more = (len(data) + 3).to_bytes(size, "little")

    with pytest.raises(DamagedElfError, match=f" bytes of {len(data)}, but its header says .* of {len(data) + 3}"):
        read(data[:8] + more + data[8 + size :] + bytes(3))


@pytest.mark.parametrize(("version", "method"), FORMS)
def test_compressed_data_that_is_not_a_bundle_is_refused(version: int, method: str) -> None:
    with pytest.raises(DamagedElfError, match=r"the unpacked data is not a bundle|are outside the data"):
        read(packed(b"x" * 10_000, version, method))
    with pytest.raises(DamagedElfError, match="are outside the data"):
        read(packed(TWO[:-1], version, method))


def test_the_packed_data_may_come_out_in_any_pieces() -> None:
    code = [(f"{HIP}gfx{number}", shell("gfx942", 1 << 16)) for number in range(900, 940)]

    found = only(packed(bundle([(HOST, b""), *code])))

    assert [(entry.size, entry.sha256) for entry in found.entries[1:]] == [
        (1 << 16, sha256(code[0][1]).hexdigest())
    ] * 40


@pytest.mark.parametrize("version", [None, 1, 2, 3], ids=["plain", "v1", "v2", "v3"])
def test_bytes_between_two_entries_that_are_not_zero_are_refused(version: int | None) -> None:
    """Nothing reads them, so they could hide data."""
    hidden = TWO[:4000] + b"x" + TWO[4001:]
    assert TWO[4000] == 0

    for data in (packed(hidden, version), packed(TWO + b"x")) if version else (hidden,):
        with pytest.raises(DamagedElfError, match="belong to no entry and are not zero"):
            read(data)
