"""Archives are opened only if every tool sees the same, harmless files in them; each other kind has its fault."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
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
"""An end record that leaves everything to the larger one; the numbers are those of an archive of S."""


def faults(folder: Path, data: bytes) -> list[tuple[str, str, str]]:
    """Member, expectation and finding of each fault; an archive with any is not opened either."""
    path = folder / "x.whl"
    path.write_bytes(data)
    found = find_archive_faults(path)
    if found and "unpack to the size" not in found[0].expected:  # what members unpack to is not looked at to open them
        with pytest.raises(InputError, match="unsafe archive"), open_archive(path):
            pass
    return [(fault.member, fault.expected, fault.found) for fault in found]


def refused(folder: Path, data: bytes) -> str:
    """Why an archive cannot be read at all."""
    path = folder / "x.whl"
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged zip file") as found:
        find_archive_faults(path)
    with pytest.raises(InputError, match="damaged zip file"), open_archive(path):
        pass
    return found.value.which


class Unseekable(io.BytesIO):
    """A file that is written from its beginning to its end, like a pipe."""

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


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(zip_bytes([]), id="no member"),
        pytest.param(zip_bytes([A, B]), id="deflated"),
        pytest.param(
            zip_bytes([Member("a.bin", b"12", method=0), Member("b/", method=0, mode=0o40755), B]), id="stored"
        ),
        pytest.param(zip_bytes([Member("a", flags=0x6), Member("a.b"), Member("a-b/c")]), id="names that begin alike"),
        pytest.param(zip_bytes([Member("é.py", b"1"), Member("日/本.py", b"2")]), id="names in UTF-8"),
        pytest.param(zip_bytes([Member("a.py", b"1", mode=0), Member("b/c/d/e", mode=0o100755)]), id="modes"),
        pytest.param(zip_bytes([A, B], wide=True), id="the larger end record"),
        pytest.param(zip_bytes([S], wide=True, end=ELSEWHERE), id="the larger end record alone"),
        pytest.param(
            zip_bytes([Member("a", b"12", 0, local={"packed": WIDE, "unpacked": WIDE}, local_extra=wide(2, 2))]),
            id="sizes of 8 bytes",
        ),
        pytest.param(zip_bytes([Member("a", b"12", extra=b"UT\x05\0" + bytes(5))]), id="a time of another system"),
        pytest.param(zip_bytes([Member("a", b"12", flags=STREAMED), B]), id="sizes that follow"),
        pytest.param(streamed(), id="written to a pipe"),
    ],
)
def test_a_good_archive(tmp_path: Path, data: bytes) -> None:
    assert faults(tmp_path, data) == []
    with open_archive(tmp_path / "x.whl") as archive:
        assert archive.testzip() is None


def in_place(member: Member, **changes: object) -> Member:
    return Member(**{**vars(member), **changes})


@pytest.mark.parametrize(
    ("members", "expected", "found"),
    [
        # names
        pytest.param([Member("../a")], "a path without empty parts", "such a part", id="above"),
        pytest.param([Member("a/../../b")], "a path without empty parts", "such a part", id="above, later"),
        pytest.param([Member("a/./b")], "a path without empty parts", "such a part", id="dot"),
        pytest.param([Member("a//b")], "a path without empty parts", "such a part", id="an empty part"),
        pytest.param([Member("..")], "a path without empty parts", "such a part", id="the folder above"),
        pytest.param([Member("/a")], "a relative path", "an absolute path or a backslash", id="absolute"),
        pytest.param([Member("C:/a")], "a relative path", "an absolute path or a backslash", id="a drive"),
        pytest.param([Member("a\\b")], "a relative path", "an absolute path or a backslash", id="backslash"),
        pytest.param([Member("a\nb")], "a printable name", "a control character", id="line feed"),
        pytest.param([Member("a\0b")], "a printable name", "a control character", id="zero byte"),
        pytest.param([Member("a\x9bb")], "a printable name", "a control character", id="C1 control"),
        pytest.param([Member("a" * 256)], "a name of at most 255 bytes", "a longer name", id="a long part"),
        pytest.param([Member("é" * 128)], "a name of at most 255 bytes", "a longer name", id="a part of many bytes"),
        pytest.param([Member("a/" * 2048 + "b")], "a name of at most 255 bytes", "a longer name", id="a long path"),
        pytest.param(
            [Member("a", local={"name": b"\xe9"}, central={"name": b"\xe9"})],
            *("a name marked as UTF-8", "no UTF-8 flag"),
            id="another character set",
        ),
        pytest.param(
            [Member("a", extra=struct.pack("<HHBI", 0x7075, 6, 1, 0) + b"b")],
            *("one name and valid extra fields", "a second name"),
            id="a second name",
        ),
        pytest.param([Member("a", extra=b"UT\x05")], "valid extra fields", "damaged", id="half a field"),
        # kinds
        pytest.param([Member("a", mode=stat.S_IFLNK | 0o777)], "a regular file", "a symbolic link", id="link"),
        pytest.param([Member("a", mode=stat.S_IFCHR)], "a regular file", "a file of mode 20000", id="device"),
        pytest.param([Member("a", mode=stat.S_IFIFO)], "a regular file", "a file of mode 10000", id="pipe"),
        pytest.param([Member("a", mode=stat.S_IFDIR)], "a regular file", "a file of mode 40000", id="a folder, or not"),
        pytest.param([Member("a/", b"1")], "a folder without content", "1 bytes", id="a folder, or a file"),
        pytest.param([Member("a", flags=1)], "an unencrypted file", "encrypted", id="encrypted"),
        pytest.param([Member("a", flags=0x2000)], "every tool supports", "flags 0x2000", id="masked headers"),
        pytest.param([Member("a", method=12)], "stored or deflated", "compression method 12", id="bzip2"),
        pytest.param([Member("a", method=14)], "stored or deflated", "compression method 14", id="LZMA"),
        pytest.param(
            [Member("a", b"1", 0, STREAMED)], "a stored file with one size", "a descriptor", id="stored, no size"
        ),
        pytest.param(
            [Member("a", b"12", 0, local={"unpacked": 1}, central={"unpacked": 1})],
            *("a stored file with one size, in its header", "two sizes"),
            id="stored, two sizes",
        ),
        # two of a name
        pytest.param([A, B, A], "one member of this name", "two", id="twice"),
        pytest.param(
            [Member("a/"), Member("a/b"), Member("a/")], "one member of this name", "two", id="a folder twice"
        ),
        pytest.param([Member("a"), Member("a/")], "one member of this name", "two", id="file and folder"),
        pytest.param(
            [Member("a/b/c"), Member("a-"), Member("a")], "a file or a folder", "both", id="file above a file"
        ),
        pytest.param([Member("a"), Member("a/b/")], "a file or a folder", "both", id="file above a folder"),
        pytest.param(
            [Member("/".join(["a"] * 80)), Member("/".join(["a"] * 79))], "a file or a folder", "both", id="far below"
        ),
        # headers that say something else
        pytest.param(
            [Member("a", local={"name": b"b"})], "header and the directory", "another name", id="another name"
        ),
        pytest.param(
            [Member("a", b"12", local={"unpacked": 3})], "header and the directory", "size", id="more before it"
        ),
        pytest.param(
            [Member("a", b"12", central={"unpacked": 3})], "header and the directory", "size", id="more in the end"
        ),
        pytest.param([Member("a", b"12", local={"crc": 1})], "header and the directory", "another", id="another CRC"),
        pytest.param(
            [Member("a", b"12", local={"packed": 1})], "header and the directory", "another", id="another length"
        ),
        pytest.param(
            [Member("a", b"12", 0, local={"method": 8})], "header and the directory", "method", id="another method"
        ),
        pytest.param(
            [Member("a", b"12", local={"flags": 8})], "header and the directory", "another", id="another flag"
        ),
        pytest.param(
            [Member("a", local={"flags": 0x800})], "header and the directory", "another", id="another character set"
        ),
        pytest.param(
            [Member("a", b"12", 0, local={"packed": WIDE, "unpacked": WIDE}, local_extra=wide(2, 3))],
            *("the header and the directory to agree", "another name, size or method"),
            id="another size of 8 bytes",
        ),
        pytest.param(
            [Member("a", b"12", 0, local={"packed": WIDE})],
            "a header before the member",
            "no header",
            id="no size of 8 bytes",
        ),
        pytest.param(
            [Member("a", local_extra=b"UT\x05")], "a header before the member", "no header", id="half a local field"
        ),
        pytest.param(
            [Member("a", local_extra=struct.pack("<HHBI", 0x7075, 6, 1, 0) + b"b")],
            *("a header before the member", "no header"),
            id="a second local name",
        ),
        pytest.param(
            [Member("a", local_extra=b"UT\x05\0ab")],
            "a header before the member",
            "no header",
            id="less than a field says",
        ),
        pytest.param(
            [Member("a", local_extra=2 * b"UT\0\0")], "a header before the member", "no header", id="a field twice"
        ),
        pytest.param(
            [Member("a", b"12", local={"crc": 0, "packed": 0, "unpacked": 0})],
            *("the header and the directory to agree", "another name, size or method"),
            id="no sizes, and none that follow",
        ),
        pytest.param(
            [Member("a", b"12", flags=STREAMED, local={"crc": 7})],
            "header and the directory",
            "another",
            id="half streamed",
        ),
        pytest.param(
            [A, in_place(B, central={"offset": 3})], "where the member before it ends", "overlap", id="no header there"
        ),
        # what stands between
        pytest.param(
            [A, in_place(B, before=b"!")], "where the member before it ends", "1 bytes in between", id="a byte between"
        ),
        pytest.param(
            [in_place(A, before=b"MZ"), B],
            "where the member before it ends",
            "2 bytes in between",
            id="something before",
        ),
        pytest.param(
            [A, in_place(B, before=zip_bytes([Member("c.py")])[:30])],
            "where the member before it ends",
            "bytes in between",
            id="hidden",
        ),
        pytest.param(
            [A, in_place(A, name="c", central={"offset": 0})],
            "where the member before it ends",
            "overlap",
            id="shared bytes",
        ),
        pytest.param(
            [Member("a", b"12", flags=STREAMED, descriptor=b"")],
            "a descriptor with",
            "a wrong descriptor",
            id="no sizes follow",
        ),
        pytest.param(
            [Member("a", b"12", flags=STREAMED, descriptor=struct.pack("<4sIII", b"PK\x07\x08", 1, 4, 2))],
            *("a descriptor with the right sizes", "a wrong descriptor"),
            id="wrong sizes follow",
        ),
        pytest.param(
            [Member("a", b"12", descriptor=bytes(16))],
            "where the member before it ends",
            "16 bytes",
            id="sizes of nothing",
        ),
        # what members unpack to
        pytest.param(
            [Member("a", b"12", packed=deflated(b"13"))], "to unpack to the size", "other bytes", id="other bytes"
        ),
        pytest.param(
            [Member("a", b"12", packed=deflated(b"123"))], "to unpack to the size", "other bytes", id="unpacks to more"
        ),
        pytest.param(
            [Member("a", b"12", packed=deflated(b"1"))], "to unpack to the size", "other bytes", id="unpacks to less"
        ),
        pytest.param(
            [Member("a", b"12", packed=deflated(b"12") + b"3")],
            "to unpack to the size",
            "other bytes",
            id="more behind",
        ),
        pytest.param(
            [Member("a", b"12", packed=deflated(b"12")[:-1])], "to unpack to the size", "other bytes", id="cut short"
        ),
        pytest.param(
            [Member("a", b"12", packed=b"\xff\xff")], "to unpack to the size", "other bytes", id="not deflated"
        ),
        pytest.param([Member("a", b"12", packed=b"")], "to unpack to the size", "other bytes", id="nothing"),
        pytest.param(
            [Member("a", b"12", 0, packed=b"13")], "to unpack to the size", "other bytes", id="other stored bytes"
        ),
        # all together
        pytest.param([Member("a", bytes(1 << 27))], "at most 100 times", "134217728 bytes", id="bomb"),
    ],
)
def test_an_archive_with_a_fault(tmp_path: Path, members: list[Member], expected: str, found: str) -> None:
    fault, *_ = faults(tmp_path, zip_bytes(members))

    assert expected in fault[1]
    assert found in fault[2]


def test_the_first_prefix_that_a_streaming_reader_sees_is_no_second_file(tmp_path: Path) -> None:
    """A member whose packed data ends early, with another member hidden in the rest of its bytes."""
    hidden = zip_bytes([Member("evil.py", b"import os")])
    packed = deflated(b"x = 1\n")
    member = Member("a.py", b"x = 1\n", packed=packed + hidden[: hidden.index(b"PK\x01\x02")])

    assert [fault[0] for fault in faults(tmp_path, zip_bytes([member]))] == ["'a.py'"]


def test_every_fault_is_told_but_not_millions(tmp_path: Path) -> None:
    assert len(faults(tmp_path, zip_bytes([Member("../a"), Member("/b"), Member("c\n")]))) == 3
    assert len(faults(tmp_path, zip_bytes([Member(f"../{number}") for number in range(500)]))) == 100


def test_a_fault_names_its_member_so_that_it_can_be_printed(tmp_path: Path) -> None:
    ((member, _, _),) = faults(tmp_path, zip_bytes([Member("\x1b[2Ja")]))

    assert member == r"'\x1b[2Ja'"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "truncated", id="nothing"),
        pytest.param(b"x = 1" * 100, "no end record at the end", id="another file"),
        pytest.param(zip_bytes([A])[:-1], "no end record at the end", id="cut short"),
        pytest.param(zip_bytes([A]) + b"!", "no end record at the end", id="something behind"),
        pytest.param(zip_bytes([A], comment=b"hello"), "no end record at the end", id="a comment"),
        pytest.param(zip_bytes([A], end={"comment": 5}), "no end record at the end", id="half a comment"),
        pytest.param(zip_bytes([A], end={"disk": 1}), "split archives are not supported", id="disk"),
        pytest.param(zip_bytes([A], end={"here": 0}), "split archives are not supported", id="members on other disks"),
        pytest.param(zip_bytes([A, B], end={"members": 1}), "2 members, the end record says 1", id="fewer members"),
        pytest.param(zip_bytes([A], end={"members": 2}), "1 members, the end record says 2", id="more members"),
        pytest.param(zip_bytes([A], end={"size": WIDE}), "a directory of 4294967295 bytes", id="a huge directory"),
        pytest.param(zip_bytes([S], end={"size": 40}), "central directory", id="half a directory"),
        pytest.param(zip_bytes([A], wide=True, end={"wide members": 2}), "end records differ", id="two numbers"),
        pytest.param(zip_bytes([A], wide=True, end={"wide size": 49}), "end records differ", id="two sizes"),
        pytest.param(zip_bytes([A], wide=True, end={"wide offset": 0}), "end records differ", id="two places"),
        pytest.param(
            zip_bytes([A], wide=True, end={"wide place": 0}), "not where its locator says", id="another place"
        ),
        pytest.param(zip_bytes([A], wide=True, end={"disks": 2}), "split archives are not supported", id="more disks"),
        pytest.param(
            zip_bytes([S])[:80] + b"PK\x06\x07" + bytes(16) + zip_bytes([S])[80:],
            "not where its locator says",
            id="alone",
        ),
    ],
)
def test_what_is_no_archive(tmp_path: Path, data: bytes, why: str) -> None:
    assert why in refused(tmp_path, data)


@pytest.mark.parametrize(
    ("data", "moved"),
    [
        pytest.param(b"#!/bin/sh\n" + zip_bytes([A]), "10 bytes", id="a program before it"),
        pytest.param(zip_bytes([S], comment=zip_bytes([S])), "102 bytes", id="an archive in the comment of another"),
        pytest.param(zip_bytes([A], gap=b"hidden"), "", id="something before the directory"),
        pytest.param(zip_bytes([S], end={"offset": 30}), "3 bytes", id="a directory that begins earlier"),
        pytest.param(zip_bytes([S], end={"offset": 40}), "-7 bytes", id="a directory that begins later"),
    ],
)
def test_a_directory_that_is_not_where_it_is_said_to_be(tmp_path: Path, data: bytes, moved: str) -> None:
    found = faults(tmp_path, data)

    if moved:
        assert found[0] == ("(all)", "nothing before the first member, and the directory at its offset", moved)
    else:
        assert found[0][0] == "(the directory)"
