"""Writes the zip archive of a wheel; members of another archive are copied as they lie there, packed.

zipfile has no way to do that: it unpacks and packs again, which is most of the time that a large wheel costs. Members
that are new are stored as they are, so that the bytes of the archive do not hang on the version of a compressor.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import IO, TypeAlias

from wheelfactory.wheel.zip_format import UTF8, End, Header, pack_end, pack_entry, pack_header, read_header

DateTime: TypeAlias = "tuple[int, int, int, int, int, int]"

FIRST_TIME: DateTime = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip archive can hold."""

_CHUNK = 1 << 20


class ArchiveWriter:
    """Writes an archive to an empty file, from its first byte to its last; all members get one time."""

    def __init__(self, file: IO[bytes], date_time: DateTime) -> None:
        year, month, day, hour, minute, second = max(date_time, FIRST_TIME)
        self._time = hour << 11 | minute << 5 | second // 2, (year - FIRST_TIME[0]) << 9 | month << 5 | day
        self._file = file
        self._at = 0
        self._directory: list[bytes] = []

    def copy(self, name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, executable: bool) -> None:
        """Add a member of an archive that `open_archive` has looked at, under a name.

        Raises `zipfile.BadZipFile` if the archive ends before the member does.
        """
        source, mode = archive.fp, 0o100755 if executable else 0o100644
        found = read_header(source, info.header_offset) if source else None
        assert source and found
        self._begin(name, info.compress_type, (info.CRC, info.compress_size, info.file_size), mode)
        source.seek(found[1])
        left = info.compress_size
        while left:
            piece = source.read(min(left, _CHUNK))
            if not piece:
                raise zipfile.BadZipFile(f"{name} is cut short")
            self._write(piece)
            left -= len(piece)

    def add(self, name: str, data: bytes) -> None:
        """Add a member of these bytes."""
        self._begin(name, zipfile.ZIP_STORED, (zlib.crc32(data), len(data), len(data)), 0o100644)
        self._write(data)

    def finish(self) -> None:
        """Write the directory; nothing can be added then."""
        start = self._at
        for entry in self._directory:
            self._write(entry)
        self._write(pack_end(End(len(self._directory), start, self._at - start)))

    def _begin(self, name: str, method: int, sizes: tuple[int, int, int], mode: int) -> None:
        flags = 0 if name.isascii() else UTF8
        header = Header(name.encode("utf-8"), flags, method, self._time, sizes)
        self._directory.append(pack_entry(header, mode, self._at))
        self._write(pack_header(header))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._at += len(data)
