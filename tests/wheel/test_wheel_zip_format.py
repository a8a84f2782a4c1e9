"""Every tool reads the written archives; copied members keep their compressed bytes."""

from __future__ import annotations

import io
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wheel_factory import DATE, read_zip, write_zip
from wheelfactory.core.errors import InputError
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.zip_format import (
    ArchiveWriter,
    DateTime,
    read_header,
)

FILES = {
    "a.txt": b"a line that is there many times\n" * 1000,
    "folder/empty": b"",
    "folder/\N{GREEK SMALL LETTER ALPHA}\N{HIGH VOLTAGE SIGN}.py": b"x = 1\n",
}


@contextmanager
def written(path: Path, date_time: DateTime = DATE) -> Iterator[ArchiveWriter]:
    with path.open("xb") as file:
        archive = ArchiveWriter(file, date_time)
        yield archive
        archive.finish()


def copied(source: Path, target: Path) -> Path:
    with open_archive(source) as archive, written(target) as copy:
        for info in archive.infolist():
            copy.copy(info.filename, archive, info, executable=info.filename == "a.txt")
    return target


def packed_bytes(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Method, checksum and packed bytes of every member."""
    with zipfile.ZipFile(path) as archive:
        assert archive.fp
        result = {}
        for info in archive.infolist():
            found = read_header(archive.fp, info.header_offset)
            assert found
            archive.fp.seek(found[1])
            result[info.filename] = (info.compress_type, info.CRC, archive.fp.read(info.compress_size))
        return result


def assert_sound(path: Path) -> None:
    """Read with zipfile, unzip, and `open_archive`, which refuses ambiguous archives."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with open_archive(path):
        pass
    if shutil.which("unzip"):
        done = subprocess.run(["unzip", "-tqq", path], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_copied_as_they_are_packed(tmp_path: Path, method: int) -> None:
    source = tmp_path / "source.zip"
    write_zip(source, FILES, compression=method)

    target = copied(source, tmp_path / "target.zip")

    assert_sound(target)
    assert packed_bytes(target) == packed_bytes(source)
    assert read_zip(target) == FILES
    assert packed_bytes(target)["a.txt"][0] == method


class OneWay(io.FileIO):
    """A file that cannot seek."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise io.UnsupportedOperation


def test_sizes_that_follow_a_member_are_put_before_it(tmp_path: Path) -> None:
    """A writer that cannot seek puts a descriptor after the member; some streaming readers cannot read that."""
    source = tmp_path / "source.zip"
    with OneWay(source, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)

    target = copied(source, tmp_path / "target.zip")

    assert_sound(target)
    assert packed_bytes(target) == packed_bytes(source)
    with zipfile.ZipFile(target) as archive:
        assert not any(info.flag_bits & 0x8 for info in archive.infolist())


def test_time_mode_and_system_are_fixed(tmp_path: Path) -> None:
    source = tmp_path / "source.zip"
    write_zip(source, FILES, executable=["folder/empty"], date_time=(1999, 1, 1, 0, 0, 0))

    with zipfile.ZipFile(copied(source, tmp_path / "target.zip")) as archive:
        found = {
            info.filename: (info.date_time, stat.filemode(info.external_attr >> 16), info.create_system, info.extra)
            for info in archive.infolist()
        }

    assert found.pop("a.txt") == (DATE, "-rwxr-xr-x", 3, b"")
    assert set(found.values()) == {(DATE, "-rw-r--r--", 3, b"")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((1980, 0, 0, 0, 0, 0), (1980, 1, 1, 0, 0, 0)),
        ((1970, 1, 1, 0, 0, 0), (1980, 1, 1, 0, 0, 0)),
        ((2026, 12, 31, 23, 59, 59), (2026, 12, 31, 23, 59, 58)),
        ((2107, 12, 31, 23, 59, 58), (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_times_are_those_that_a_zip_archive_can_hold(tmp_path: Path, given: DateTime, expected: DateTime) -> None:
    with written(tmp_path / "a.zip", given) as archive:
        archive.add("a", b"")

    with zipfile.ZipFile(tmp_path / "a.zip") as found:
        assert found.infolist()[0].date_time == expected


@pytest.mark.parametrize(
    ("size", "unpacked", "kind", "what"),
    [
        (1 << 32, 1 << 32, InputError, "too large for a wheel: 4 GiB with a.txt"),
        (100, 1 << 32, InputError, "too large for a wheel: 4 GiB with a.txt"),
        (1 << 20, 1 << 20, zipfile.BadZipFile, "a.txt is truncated"),
    ],
)
def test_4_gib_and_a_member_that_is_cut_short_are_refused(
    tmp_path: Path, size: int, unpacked: int, kind: type[Exception], what: str
) -> None:
    write_zip(tmp_path / "source.zip", FILES)
    with zipfile.ZipFile(tmp_path / "source.zip") as source, written(tmp_path / "a.zip") as archive:
        info = source.getinfo("a.txt")
        info.compress_size, info.file_size = size, unpacked
        with pytest.raises(kind, match=what):
            archive.copy("a.txt", source, info, executable=False)
