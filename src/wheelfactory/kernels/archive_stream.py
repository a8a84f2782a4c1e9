"""A tar inside zstandard, read once from front to end: plain files with one plain header each, and nothing else.

Less than what tar can say, because a reader of all of it follows links, takes names of any length into memory, and
makes devices. Sources: POSIX.1-1988 (ustar) for the header, RFC 8878 for zstandard.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import zstandard

_BLOCK = 512
"""Bytes of a tar header, and of what contents are filled up to."""
_END = bytes(2 * _BLOCK)
_PIECE = 1 << 11
"""Bytes handed to the decompressor at once; zstd's densest block makes 128 KiB of 4, so this makes 64 MiB at most."""
_WINDOW_LOG = 27
"""Of the zstd window, for writer and reader, in powers of two: objects of one set resemble each other."""
_LEVEL = 9
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a folder",
    tarfile.FIFOTYPE: "a pipe",
}


class DamagedStreamError(Exception):
    """What is wrong with the tape, in words that follow its name."""


@contextmanager
def open_writer(file: IO[bytes]) -> Iterator[zstandard.ZstdCompressionWriter]:
    """A tape for `write_member`, with its end behind the last; the same bytes for the same members."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, enable_ldm=True, write_checksum=True
    )
    with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(file, closefd=False) as tape:
        yield tape
        tape.write(_END)


def write_member(tape: zstandard.ZstdCompressionWriter, name: str, size: int, content: Iterable[bytes]) -> None:
    """Put a content of `size` bytes on a tape: no owner, no time, for all to read."""
    member = tarfile.TarInfo(name)
    member.size = size
    tape.write(member.tobuf(tarfile.USTAR_FORMAT))
    for piece in content:
        tape.write(piece)
    tape.write(bytes(-size % _BLOCK))


class ArchiveStream:
    """The reader. What it raises is `DamagedStreamError`, or `OSError` for a file that cannot be read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._inflater = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj()
        self._ready = memoryview(b"")

    def read_header(self) -> tuple[str, int]:
        """Name and bytes of the next member, whose content is to be read by `content` before the next."""
        block = self._exactly(_BLOCK)
        if not any(block):
            raise DamagedStreamError("it ends before its last member")
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise DamagedStreamError(f"it is no tar archive inside ({error})") from None
        name = ascii(found.name[:200])[1:-1]
        if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise DamagedStreamError(f"{name} is {_KINDS.get(found.type, 'of a kind that is not taken')}")
        if found.size < 0:
            raise DamagedStreamError(f"{name} has a size below 0")
        return name, found.size

    def read_content(self, size: int) -> Iterator[memoryview]:
        """The next `size` bytes, in pieces, and past what fills them up."""
        yield from self._pieces(size)
        if any(self._exactly(-size % _BLOCK)):
            raise DamagedStreamError("there is something between its members")

    def read_end(self) -> None:
        """Read the end. Raises `DamagedStreamError` if there is more, or less."""
        if self._exactly(len(_END)) != _END:
            raise DamagedStreamError("there is something behind its last member")
        while not self._inflater.eof:
            self._more()
        if self._ready or self._inflater.unused_data or self._file.read(1):
            raise DamagedStreamError("there is something behind its end")

    def _exactly(self, size: int) -> bytes:
        return b"".join(self._pieces(size))

    def _pieces(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self._ready:
                self._more()
            piece = self._ready[:size]
            self._ready = self._ready[len(piece) :]
            size -= len(piece)
            yield piece

    def _more(self) -> None:
        if self._inflater.eof:
            raise DamagedStreamError("it ends before its last member")
        packed = self._file.read(_PIECE)
        if not packed:
            raise DamagedStreamError("it was cut short")
        try:
            made = self._inflater.decompress(packed)
        except zstandard.ZstdError as error:
            raise DamagedStreamError(f"its zstandard stream is damaged or none ({error})") from None
        if self._ready and made:
            raise DamagedStreamError("there is something behind its last member")
        self._ready = memoryview(made)
