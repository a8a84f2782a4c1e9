"""Hostile archives: reading or refusing them takes limited time and memory."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from resource_limits import run_limited
from wheelfactory.core.errors import InputError
from wheelfactory.wheel.archive import find_archive_faults
from zip_factory import Member, deflated, zip_bytes

pytestmark = pytest.mark.slow

_DIRECTORY = struct.Struct("<4s6HIII5HII")


def many(count: int, name: str = "{}") -> bytes:
    return zip_bytes([Member(name.format(number), method=0) for number in range(count)])


def end_of(count: int, size: int, offset: int) -> bytes:
    return struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, count, count, size, offset, 0)


def outcome_of(folder: Path, data: bytes, megabytes: int = 128, seconds: int = 10) -> str:
    path = folder / "x.whl"
    path.write_bytes(data)
    return run_limited(lambda: raise_faults(path), seconds=seconds, megabytes=megabytes)


def raise_faults(path: Path) -> None:
    """Raise the faults of an archive as an error."""
    faults = find_archive_faults(path)
    if faults:
        raise InputError(f"{len(faults)} faults", f"{faults[0].expected}, {faults[0].found}", "download it again")


@pytest.mark.parametrize(
    ("count", "megabytes", "why"),
    [
        (500_000, 16, "a directory of 23000000 bytes, more than 16777216"),
        (70_000, 128, "70000 members, the end record says 65535"),
    ],
)
def test_a_huge_directory_is_refused(tmp_path: Path, count: int, megabytes: int, why: str) -> None:
    directory = (b"PK\x01\x02" + bytes(42)) * count

    assert why in outcome_of(tmp_path, directory + end_of(0xFFFF, len(directory), 0), megabytes)


def test_the_maximum_number_of_members_is_read_in_time(tmp_path: Path) -> None:
    assert outcome_of(tmp_path, many(65_000)) == "nothing"


def test_more_than_the_maximum_number_of_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wheelfactory.wheel.archive._MAX_MEMBERS", 100)

    assert outcome_of(tmp_path, many(100)) == "nothing"
    assert outcome_of(tmp_path, many(101)) == "InputError: 1 faults: 100 members or fewer, 101"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("{0}/" + "a/" * 2500, id="folders of its own"),
        pytest.param("a/" * 2500 + "{0}", id="the same folders"),
        pytest.param("{0}" + "x" * 5000, id="one part"),
        pytest.param("{0:\0<5000}", id="zero bytes"),
    ],
)
def test_very_long_names_are_refused(tmp_path: Path, name: str) -> None:
    assert outcome_of(tmp_path, many(2000, name), 64).startswith("InputError: 100 faults: ")


def test_files_deep_in_the_same_folders(tmp_path: Path) -> None:
    assert outcome_of(tmp_path, many(3500, "a/" * 1000 + "{}")) == "nothing"


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    packed, count = deflated(bytes(1 << 24)), 30_000
    header = struct.pack("<4s5HIIIHH", b"PK\x03\x04", 20, 0, 8, 0, 0x21, 0, len(packed), 1 << 24, 1, 0) + b"a"
    rows = [
        (0x314, 20, 0, 8, 0, 0x21, 0, len(packed), 1 << 24, 5, 0, 0, 0, 0, 0, number * len(header))
        for number in range(count)
    ]
    directory = b"".join(_DIRECTORY.pack(b"PK\x01\x02", *row) + b"%05d" % number for number, row in enumerate(rows))
    body = header * count + packed

    found = outcome_of(tmp_path, body + directory + end_of(count, len(directory), len(body)))

    assert found.startswith("InputError: 3 faults: ")
    assert "at most 100 times" in found


def test_a_member_that_exceeds_its_size_is_not_unpacked_further(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    part = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    member = Member("a", b"12", packed=part * 512 + packer.flush())

    assert "to unpack to the size" in outcome_of(tmp_path, zip_bytes([member]), seconds=2)


def test_many_empty_extra_fields(tmp_path: Path) -> None:
    extra = b"".join(struct.pack("<HH", number, 0) for number in range(2, 16_000))
    members = [Member(str(number), extra=extra, local_extra=extra) for number in range(40)]

    assert outcome_of(tmp_path, zip_bytes(members)) == "nothing"
