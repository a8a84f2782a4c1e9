"""An archive is opened only if every tool extracts the same, harmless files; every other archive has a fault."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from wheelfactory.core.errors import InputError
from wheelfactory.wheel.archive import find_archive_faults, open_archive
from zip_factory import STREAMED, Member, deflated, zip_bytes

A, B = Member("a.py", b"x = 1\n"), Member("b.py", b"y = 2\n" * 40)
S = Member("s", b"12", 0)
"""A stored member: 33 bytes, and 47 in the directory."""
WIDE = 0xFFFFFFFF
ELSEWHERE = {"members": 0xFFFF, "here": 0xFFFF, "size": WIDE, "offset": WIDE} | {
    "wide members": 1,
    "wide size": 47,
    "wide offset": 33,
}
"""An end record whose values are all in the ZIP64 record; the numbers fit an archive of S."""


def faults(folder: Path, data: bytes) -> list[tuple[str, str, str]]:
    """Return member, expectation and finding of each fault; assert that `open_archive` refuses the archive too."""
    path = folder / "x.whl"
    path.write_bytes(data)
    found = find_archive_faults(path)
    if found and "unpack to the size" not in found[0].expected:  # opening does not unpack
        with pytest.raises(InputError, match="unsafe archive"), open_archive(path):
            pass
    return [(fault.member, fault.expected, fault.found) for fault in found]


def refused(folder: Path, data: bytes) -> str:
    """Return why an archive is damaged."""
    path = folder / "x.whl"
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged zip file") as found:
        find_archive_faults(path)
    with pytest.raises(InputError, match="damaged zip file"), open_archive(path):
        pass
    return found.value.which


class Unseekable(io.BytesIO):
    """An archive written to a file that cannot seek, like a pipe."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation

    seek = None  # type: ignore[assignment]


def streamed() -> bytes:
    file = Unseekable()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", b"x = 1\n" * 50)
        archive.writestr("é/b.py", b"y = 2\n")
    return file.getvalue()


def wide(packed: int, unpacked: int) -> bytes:
    """The extra field with sizes of 8 bytes."""
    return struct.pack("<HHQQ", 1, 16, unpacked, packed)


WIDE_SIZES = struct.pack("<4sIQQ", b"PK\x07\x08", zlib.crc32(b"12"), len(deflated(b"12")), 2)
GOOD_ARCHIVES: list[bytes] = [
    zip_bytes([]),  # no member
    zip_bytes([A, B]),  # deflated
    zip_bytes([Member("a.bin", b"12", method=0), Member("b/", method=0, mode=0o40755), B]),  # stored
    zip_bytes([Member("a", flags=0x6), Member("a.b"), Member("a-b/c")]),  # names that begin alike
    zip_bytes([Member("é.py", b"1"), Member("日/本.py", b"2")]),  # names in UTF-8
    zip_bytes([Member("a.py", b"1", mode=0), Member("b/c/d/e", mode=0o100755)]),  # modes
    zip_bytes([A, B], wide=True),  # the larger end record
    zip_bytes([S], wide=True, end=ELSEWHERE),  # the larger end record alone
    zip_bytes(
        [Member("a", b"12", 0, local={"packed": WIDE, "unpacked": WIDE}, local_extra=wide(2, 2))]
    ),  # sizes of 8 bytes
    zip_bytes([Member("a", b"12", extra=b"UT\x05\0" + bytes(5))]),  # a time of another system
    zip_bytes([Member("a", b"12", flags=STREAMED), B]),  # sizes that follow
    zip_bytes([Member("a", b"12", flags=STREAMED, descriptor=WIDE_SIZES), B]),  # sizes of 8 bytes that follow
    streamed(),  # written to a pipe
]


def test_good_archives_have_no_faults(tmp_path: Path) -> None:
    for data in GOOD_ARCHIVES:
        assert faults(tmp_path, data) == []
        with open_archive(tmp_path / "x.whl") as archive:
            assert archive.testzip() is None


def in_place(member: Member, **changes: object) -> Member:
    return Member(**{**vars(member), **changes})


SECOND_NAME = struct.pack("<HHBI", 0x7075, 6, 1, 0) + b"b"
WRONG_SIZES = struct.pack("<4sIII", b"PK\x07\x08", 1, 4, 2)
FAULTS: list[tuple[list[Member], str, str]] = [
    ([Member("../a")], "a path without empty parts", "such a part"),  # above
    ([Member("a/../../b")], "a path without empty parts", "such a part"),  # above, later
    ([Member("a/./b")], "a path without empty parts", "such a part"),  # dot
    ([Member("a//b")], "a path without empty parts", "such a part"),  # an empty part
    ([Member("..")], "a path without empty parts", "such a part"),  # the folder above
    ([Member("/a")], "a relative path", "an absolute path or a backslash"),  # absolute
    ([Member("C:/a")], "a relative path", "an absolute path or a backslash"),  # a drive
    ([Member("a\\b")], "a relative path", "an absolute path or a backslash"),  # backslash
    ([Member("a\nb")], "a printable name", "a control character"),  # line feed
    ([Member("a\0b")], "a printable name", "a control character"),  # zero byte
    ([Member("a\x9bb")], "a printable name", "a control character"),  # C1 control
    ([Member("a" * 256)], "a name of at most 255 bytes", "a longer name"),  # a long part
    ([Member("é" * 128)], "a name of at most 255 bytes", "a longer name"),  # a part of many bytes
    ([Member("a/" * 2048 + "b")], "a name of at most 255 bytes", "a longer name"),  # a long path
    ([Member("a", local={"name": b"\xe9"}, central={"name": b"\xe9"})], "a name marked as UTF-8", "no UTF-8 flag"),
    ([Member("a", extra=SECOND_NAME)], "one name and valid extra fields", "a second name"),
    ([Member("a", extra=b"UT\x05")], "valid extra fields", "damaged"),  # half a field
    ([Member("a", mode=stat.S_IFLNK | 0o777)], "a regular file", "a symbolic link"),  # link
    ([Member("a", mode=stat.S_IFCHR)], "a regular file", "a file of mode 20000"),  # device
    ([Member("a", mode=stat.S_IFIFO)], "a regular file", "a file of mode 10000"),  # pipe
    ([Member("a", mode=stat.S_IFDIR)], "a regular file", "a file of mode 40000"),  # a folder, or not
    ([Member("a/", b"1")], "a folder without content", "1 bytes"),  # a folder, or a file
    ([Member("a", flags=1)], "an unencrypted file", "encrypted"),  # encrypted
    ([Member("a", flags=0x2000)], "every tool supports", "flags 0x2000"),  # masked headers
    ([Member("a", method=12)], "stored or deflated", "compression method 12"),  # bzip2
    ([Member("a", method=14)], "stored or deflated", "compression method 14"),  # LZMA
    ([Member("a", b"1", 0, STREAMED)], "a stored file with one size", "a descriptor"),  # stored, no size
    (
        [Member("a", b"12", 0, local={"unpacked": 1}, central={"unpacked": 1})],
        "a stored file with one size",
        "two sizes",
    ),
    ([A, B, A], "one member of this name", "two"),  # twice
    ([Member("a/"), Member("a/b"), Member("a/")], "one member of this name", "two"),  # a folder twice
    ([Member("a"), Member("a/")], "one member of this name", "two"),  # file and folder
    ([Member("a/b/c"), Member("a-"), Member("a")], "a file or a folder", "both"),  # file above a file
    ([Member("a"), Member("a/b/")], "a file or a folder", "both"),  # file above a folder
    ([Member("/".join(["a"] * 80)), Member("/".join(["a"] * 79))], "a file or a folder", "both"),  # far below
    ([Member("a", local={"name": b"b"})], "header and the directory", "another name"),  # another name
    ([Member("a", b"12", local={"unpacked": 3})], "header and the directory", "size"),  # more before it
    ([Member("a", b"12", central={"unpacked": 3})], "header and the directory", "size"),  # more in the end
    ([Member("a", b"12", local={"crc": 1})], "header and the directory", "another"),  # another CRC
    ([Member("a", b"12", local={"packed": 1})], "header and the directory", "another"),  # another length
    ([Member("a", b"12", 0, local={"method": 8})], "header and the directory", "method"),  # another method
    ([Member("a", b"12", local={"flags": 8})], "header and the directory", "another"),  # another flag
    ([Member("a", local={"flags": 0x800})], "header and the directory", "another"),  # another character set
    # another size of 8 bytes
    ([Member("a", b"12", 0, local={"packed": WIDE, "unpacked": WIDE}, local_extra=wide(2, 3))], "to agree", "another"),
    ([Member("a", b"12", 0, local={"packed": WIDE})], "a header before the member", "no header"),  # no size of 8 bytes
    ([Member("a", local_extra=b"UT\x05")], "a header before the member", "no header"),  # half a local field
    ([Member("a", local_extra=SECOND_NAME)], "a header before the member", "no header"),
    ([Member("a", local_extra=b"UT\x05\0ab")], "a header before the member", "no header"),  # less than a field says
    ([Member("a", local_extra=2 * b"UT\0\0")], "a header before the member", "no header"),  # a field twice
    # no sizes, and none that follow
    ([Member("a", b"12", local={"crc": 0, "packed": 0, "unpacked": 0})], "header and the directory", "another name"),
    ([Member("a", b"12", flags=STREAMED, local={"crc": 7})], "header and the directory", "another"),  # half streamed
    ([A, in_place(B, central={"offset": 3})], "where the member before it ends", "overlap"),  # no header there
    ([A, in_place(B, before=b"!")], "where the member before it ends", "1 bytes in between"),  # a byte between
    ([in_place(A, before=b"MZ"), B], "where the member before it ends", "2 bytes in between"),  # something before
    # hidden
    ([A, in_place(B, before=zip_bytes([Member("c.py")])[:30])], "where the member before it ends", "bytes in between"),
    ([A, in_place(A, name="c", central={"offset": 0})], "where the member before it ends", "overlap"),  # shared bytes
    # no sizes follow, or wrong ones
    ([Member("a", b"12", flags=STREAMED, descriptor=b"")], "a descriptor with", "a wrong descriptor"),
    ([Member("a", b"12", flags=STREAMED, descriptor=WRONG_SIZES)], "a descriptor with", "a wrong descriptor"),
    ([Member("a", b"12", descriptor=bytes(16))], "where the member before it ends", "16 bytes"),  # sizes of nothing
    ([Member("a", b"12", packed=deflated(b"13"))], "to unpack to the size", "other bytes"),  # other bytes
    ([Member("a", b"12", packed=deflated(b"123"))], "to unpack to the size", "other bytes"),  # unpacks to more
    ([Member("a", b"12", packed=deflated(b"1"))], "to unpack to the size", "other bytes"),  # unpacks to less
    ([Member("a", b"12", packed=deflated(b"12") + b"3")], "to unpack to the size", "other bytes"),  # more behind
    ([Member("a", b"12", packed=deflated(b"12")[:-1])], "to unpack to the size", "other bytes"),  # cut short
    ([Member("a", b"12", packed=b"\xff\xff")], "to unpack to the size", "other bytes"),  # not deflated
    ([Member("a", b"12", packed=b"")], "to unpack to the size", "other bytes"),  # nothing
    ([Member("a", b"12", 0, packed=b"13")], "to unpack to the size", "other bytes"),  # other stored bytes
    ([Member("a", bytes(80 << 20))], "at most 100 times", "83886080 bytes"),  # bomb
]


def test_unsafe_archives_are_refused(tmp_path: Path) -> None:
    for members, expected, found in FAULTS:
        fault, *_ = faults(tmp_path, zip_bytes(members))

        assert expected in fault[1]
        assert found in fault[2]


def test_the_number_of_reported_faults_is_limited(tmp_path: Path) -> None:
    assert len(faults(tmp_path, zip_bytes([Member("../a"), Member("/b"), Member("c\n")]))) == 3
    assert len(faults(tmp_path, zip_bytes([Member(f"../{number}") for number in range(500)]))) == 100


NO_ARCHIVES: list[tuple[bytes, str]] = [
    (b"", "truncated"),  # nothing
    (b"x = 1" * 100, "no end record at the end"),  # another file
    (zip_bytes([A])[:-1], "no end record at the end"),  # cut short
    (zip_bytes([A]) + b"!", "no end record at the end"),  # something behind
    (zip_bytes([A], comment=b"hello"), "no end record at the end"),  # a comment
    (zip_bytes([A], end={"comment": 5}), "no end record at the end"),  # half a comment
    (zip_bytes([A], end={"disk": 1}), "split archives are not supported"),  # disk
    (zip_bytes([A], end={"here": 0}), "split archives are not supported"),  # members on other disks
    (zip_bytes([A, B], end={"members": 1}), "2 members, the end record says 1"),  # fewer members
    (zip_bytes([A], end={"members": 2}), "1 members, the end record says 2"),  # more members
    (zip_bytes([A], end={"size": WIDE}), "a directory of 4294967295 bytes"),  # a huge directory
    (zip_bytes([S], end={"size": 40}), "central directory"),  # half a directory
    (zip_bytes([A], wide=True, end={"wide members": 2}), "end records differ"),  # two numbers
    (zip_bytes([A], wide=True, end={"wide size": 49}), "end records differ"),  # two sizes
    (zip_bytes([A], wide=True, end={"wide offset": 0}), "end records differ"),  # two places
    (zip_bytes([A], wide=True, end={"wide place": 0}), "not where its locator says"),  # another place
    (zip_bytes([A], wide=True, end={"disks": 2}), "split archives are not supported"),  # more disks
    (zip_bytes([S])[:80] + b"PK\x06\x07" + bytes(16) + zip_bytes([S])[80:], "not where its locator says"),  # alone
]


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    for data, why in NO_ARCHIVES:
        assert why in refused(tmp_path, data)


@pytest.mark.parametrize(
    ("data", "moved"),
    [
        (b"#!/bin/sh\n" + zip_bytes([A]), "10 bytes"),
        (zip_bytes([S], comment=zip_bytes([S])), "102 bytes"),
        (zip_bytes([A], gap=b"hidden"), ""),
        (zip_bytes([S], end={"offset": 30}), "3 bytes"),
        (zip_bytes([S], end={"offset": 40}), "-7 bytes"),
    ],
    ids=["a program before it", "an archive in the comment of another", "something before it", "too early", "later"],
)
def test_a_directory_at_another_offset_is_refused(tmp_path: Path, data: bytes, moved: str) -> None:
    found = faults(tmp_path, data)

    if moved:
        assert found[0] == ("(all)", "nothing before the first member, and the directory at its offset", moved)
    else:
        assert found[0][0] == "(the directory)"
