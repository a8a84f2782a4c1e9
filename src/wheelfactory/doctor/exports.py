"""Which symbols the libraries of an installed torch define, read from their files without loading them.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_SHT_DYNSYM, _SECTION = 11, struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
# the largest library of torch has 75,000 dynamic symbols and 60 sections
_MOST_SYMBOLS, _MOST_SECTIONS = 1 << 20, 1 << 12


def read_exports(folder: str, wanted: Collection[str]) -> tuple[str, ...]:
    """Return the `wanted` symbols that the libraries of torch in `folder` define, sorted.

    A file that is damaged, or no 64-bit little-endian ELF file, defines nothing.
    """
    names, found = {symbol.encode() for symbol in wanted}, set[bytes]()
    for path in sorted(path for pattern in ("libc10*.so", "libtorch*.so") for path in Path(folder).glob(pattern)):
        with suppress(OSError, OverflowError, ValueError, struct.error), path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            found.update(name for name in _defined(data) if name in names)
    return tuple(sorted(name.decode() for name in found))


def _defined(data: mmap.mmap) -> Iterator[bytes]:
    """Yield the names of the dynamic symbols that a file defines. Source: System V ABI, ELF-64."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, _ = struct.unpack_from("<HHH", data, 58)
    sections = [_SECTION.unpack_from(data, table + size * number) for number in range(min(count, _MOST_SECTIONS))]
    for section in sections:
        if section[1] == _SHT_DYNSYM and section[6] < len(sections):
            strings = sections[section[6]]
            text = data[strings[4] : strings[4] + strings[5]]
            for number in range(min(section[5] // _SYMBOL.size, _MOST_SYMBOLS)):
                name, _, _, place, _, _ = _SYMBOL.unpack_from(data, section[4] + number * _SYMBOL.size)
                if place:  # 0: undefined here
                    yield text[name : text.index(b"\0", name)]
