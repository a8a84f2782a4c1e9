"""A tar stream inside zstandard, written and read once from start to end.

A strict subset of tar: regular files with one plain header each, so that a hostile archive cannot create links or
devices, or exhaust memory by long names. Sources: POSIX.1-1988 (ustar) for the header, RFC 8878 for zstandard.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import zstandard

# bytes of a tar header; contents are padded to a multiple of it
_BLOCK = 512
_END = bytes(2 * _BLOCK)
# bytes handed to the decompressor at once. zstd's densest block makes 128 KiB of 4 bytes: 64 MiB at most a chunk
_CHUNK = 1 << 11
# log2 of the zstd window in bytes, for writer and reader. Large, because objects of one set resemble each other
_WINDOW_LOG = 27
_LEVEL = 9


class DamagedStreamError(Exception):
    """The archive is damaged; the message follows the name of the archive in an error."""


@contextmanager
def open_writer(file: IO[bytes]) -> Iterator[zstandard.ZstdCompressionWriter]:
    """Open a stream for `write_member`, and write the end marker on exit. The same members give the same bytes."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, enable_ldm=True, write_checksum=True
    )
    with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(file, closefd=False) as stream:
        yield stream
        stream.write(_END)


def write_member(stream: zstandard.ZstdCompressionWriter, name: str, size: int, content: Iterable[bytes]) -> None:
    """Write a file of `size` bytes: no owner, no time, readable by everyone."""
    member = tarfile.TarInfo(name)
    member.size = size
    stream.write(member.tobuf(tarfile.USTAR_FORMAT))
    for piece in content:
        stream.write(piece)
    stream.write(bytes(-size % _BLOCK))


class ArchiveStream:
    """Reads an archive. Every method raises `DamagedStreamError`, or `OSError` if the file cannot be read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._inflater = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj()
        self._buffer = memoryview(b"")

    def read_header(self) -> tuple[str, int]:
        """Read the next header: name and size in bytes. Call `read_content` before the next `read_header`."""
        block = self._read_exactly(_BLOCK)
        if not any(block):
            raise DamagedStreamError("it ends before its last member")
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise DamagedStreamError(f"it contains no valid tar archive ({error})") from None
        name = found.name[:200]
        if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise DamagedStreamError(f"{name} is no regular file, but of the type {found.type!r}")
        if found.size < 0:
            raise DamagedStreamError(f"{name} has a negative size")
        return name, found.size

    def read_content(self, size: int) -> Iterator[memoryview]:
        """Yield the next `size` bytes in pieces, and skip the padding after them."""
        yield from self._read_pieces(size)
        if any(self._read_exactly(-size % _BLOCK)):
            raise DamagedStreamError("it has data between its members")

    def read_end(self) -> None:
        """Read the end marker, and require that nothing follows it."""
        if self._read_exactly(len(_END)) != _END:
            raise DamagedStreamError("it has data after its last member")
        while not self._inflater.eof:
            self._decompress_chunk()
        if self._buffer or self._inflater.unused_data or self._file.read(1):
            raise DamagedStreamError("it has data after its end")

    def _read_exactly(self, size: int) -> bytes:
        return b"".join(self._read_pieces(size))

    def _read_pieces(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self._buffer:
                self._decompress_chunk()
            piece = self._buffer[:size]
            self._buffer = self._buffer[len(piece) :]
            size -= len(piece)
            yield piece

    def _decompress_chunk(self) -> None:
        if self._inflater.eof:
            raise DamagedStreamError("it ends before its last member")
        packed = self._file.read(_CHUNK)
        if not packed:
            raise DamagedStreamError("it is truncated")
        try:
            made = self._inflater.decompress(packed)
        except zstandard.ZstdError as error:
            raise DamagedStreamError(f"it is not a valid zstandard stream ({error})") from None
        if self._buffer and made:
            raise DamagedStreamError("it has data after its last member")
        self._buffer = memoryview(made)
