"""Read the dynamic table of an ELF file as the loader does, and the symbols that it finds in all needed libraries.

By segments and addresses, not by sections. It also runs inside the image of a cell, next to the libraries.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from packaging.version import Version

from wheelfactory.wheel.elf.image import DYNAMIC_ROW, PT_DYNAMIC, SYMBOL, DamagedElfError, ElfImage, StringTable

_NULL, _NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 0, 1, 4, 5, 6, 10, 14, 15, 29
_RELA, _RELASZ, _REL, _RELSZ, _PLTRELSZ, _PLTREL, _JMPREL = 7, 8, 17, 18, 2, 20, 23
_GNU_HASH, _VERSYM, _VERNEED = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE
_WEAK = 2

# rows of a dynamic table; real ones have about 40
_MAX_ENTRIES = 1 << 16
# dynamic symbols of a file; the largest library of torch has 75,000
_MAX_SYMBOLS = 1 << 21
# needed versions of a file; a symbol has 15 bits for its version index
_MAX_VERSIONS = 1 << 15


_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


@dataclass(frozen=True, slots=True)
class Symbol:
    """An undefined dynamic symbol; `library` and `version` are None if it is not versioned."""

    name: str
    weak: bool
    library: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Dynamic:
    """What a file tells the loader."""

    soname: str | None = None
    needed: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    undefined: tuple[Symbol, ...] = ()
    defined: frozenset[str] = frozenset()
    versions: tuple[tuple[str, str], ...] = ()
    """Library and version of each needed version, such as ``("libc.so.6", "GLIBC_2.14")``."""

    @property
    def glibc(self) -> Version | None:
        """The oldest glibc that can load it; None if it needs no version."""
        return max(self._numbers("GLIBC_"), default=None)

    @property
    def glibcxx(self) -> Version | None:
        """The oldest GLIBCXX (symbol version of libstdc++) that can load it; None if it needs no version."""
        return max(self._numbers("GLIBCXX_"), default=None)

    def _numbers(self, prefix: str) -> Iterator[Version]:
        for _, version in self.versions:
            if version.startswith(prefix) and _NUMBER.fullmatch(version, len(prefix)):  # skips GLIBC_PRIVATE
                yield Version(version.removeprefix(prefix))


def read_dynamic(image: ElfImage) -> Dynamic:
    """Read the dynamic table; empty for an object file or a static program. Raises `DamagedElfError`."""
    entries = read_dynamic_rows(image)
    if not entries:
        return Dynamic()
    table = dict(entries)  # the loader uses the last row of a repeated tag
    if _STRTAB not in table:
        raise DamagedElfError("the dynamic table has no string table")
    names = StringTable(image.bytes_at(image.file_offset(table[_STRTAB]), table.get(_STRSZ, 0)))
    needs = list(_needed_versions(image, table, names))
    undefined, defined = _symbols(image, table, names, dict(needs))
    return Dynamic(
        soname=names.read(table[_SONAME]) if _SONAME in table else None,
        needed=tuple(names.read(value) for tag, value in entries if tag == _NEEDED),
        # RPATH too: the loader uses it if there is no RUNPATH
        runpath=tuple(path for tag in (_RPATH, _RUNPATH) if tag in table for path in names.read(table[tag]).split(":")),
        undefined=undefined,
        defined=defined,
        versions=tuple(sorted({need for _, need in needs})),
    )


def read_dynamic_rows(image: ElfImage) -> list[tuple[int, int]]:
    """Return tag and value of each row of the dynamic table before its end mark. Raises `DamagedElfError`."""
    segments = [segment for segment in image.segments if segment.type == PT_DYNAMIC and segment.file_size]
    if not segments:
        return []
    if len(segments) > 1:  # no linker writes two: refuse them instead of guessing which one is loaded
        raise DamagedElfError(f"{len(segments)} dynamic tables")
    rows = min(segments[0].file_size // DYNAMIC_ROW.size, _MAX_ENTRIES)
    entries: list[tuple[int, int]] = []
    for tag, value in image.unpack_table(DYNAMIC_ROW, image.file_offset(segments[0].address), rows):
        if tag == _NULL:
            return entries
        entries.append((tag, value))
    raise DamagedElfError(f"no end mark in {rows} rows of the dynamic table")


def _symbols(
    image: ElfImage, table: Mapping[int, int], names: StringTable, needs: Mapping[int, tuple[str, str]]
) -> tuple[tuple[Symbol, ...], frozenset[str]]:
    if _SYMTAB not in table:
        return (), frozenset()
    count = _count_symbols(image, table)
    rows = image.unpack_table(SYMBOL, image.file_offset(table[_SYMTAB]), count)
    versions: Iterator[tuple[int]] = repeat((0,), count)
    if _VERSYM in table:
        versions = image.unpack_table(struct.Struct("<H"), image.file_offset(table[_VERSYM]), count)
    undefined, defined = set(), set()
    for (name, info, _, section, _, _), (version,) in zip(rows, versions, strict=True):
        bind = info >> 4
        if not name or not bind:  # unnamed or local
            continue
        if section:
            defined.add(names.read(name))
        else:
            library, wanted = needs.get(version & 0x7FFF, (None, None))
            undefined.add(Symbol(names.read(name), bind == _WEAK, library, wanted))
    ordered = sorted(undefined, key=lambda each: (each.name, each.version or "", each.library or "", each.weak))
    return tuple(ordered), frozenset(defined)


def _count_symbols(image: ElfImage, table: Mapping[int, int]) -> int:
    """Count the symbols that hash tables and relocations refer to; the file states no count."""
    hashed = 0
    if _HASH in table:
        _, hashed = image.unpack(struct.Struct("<II"), image.file_offset(table[_HASH]))
    count = max(hashed, _count_gnu_hashed(image, table), _count_relocated(image, table))
    if count > _MAX_SYMBOLS:
        raise DamagedElfError(f"{count} dynamic symbols")
    return count


def _count_gnu_hashed(image: ElfImage, table: Mapping[int, int]) -> int:
    """Return the last symbol index in the GNU hash table plus one; defined symbols follow all others."""
    if _GNU_HASH not in table:
        return 0
    start = image.file_offset(table[_GNU_HASH])
    one = struct.Struct("<I")
    buckets, first, bloom, _ = (value for (value,) in image.unpack_table(one, start, 4))
    buckets_at = start + 16 + 8 * bloom
    last = max((value for (value,) in image.unpack_table(one, buckets_at, buckets)), default=0)
    if last < first:  # no symbol is defined, and `first` is meaningless: GNU ld writes 1
        return 0
    chains = buckets_at + 4 * buckets
    while not image.unpack(one, chains + 4 * (last - first))[0] & 1:  # the lowest bit ends a chain
        last += 1
        if last > _MAX_SYMBOLS:
            raise DamagedElfError(f"more than {_MAX_SYMBOLS} dynamic symbols")
    return int(last) + 1


def _count_relocated(image: ElfImage, table: Mapping[int, int]) -> int:
    """Return the last symbol index in a relocation plus one."""
    forms = {_REL: struct.Struct("<QQ"), _RELA: struct.Struct("<QQQ")}
    tables = ((_RELA, _RELASZ, _RELA), (_REL, _RELSZ, _REL), (_JMPREL, _PLTRELSZ, table.get(_PLTREL, _RELA)))
    count = 0
    for tag, size, kind in tables:
        if table.get(size):
            if tag not in table or kind not in forms:
                raise DamagedElfError("relocations without an address or of an unknown kind")
            rows = image.unpack_table(forms[kind], image.file_offset(table[tag]), table[size] // forms[kind].size)
            count = max(count, 1 + max((row[1] >> 32 for row in rows), default=-1))
    return count


def _needed_versions(
    image: ElfImage, table: Mapping[int, int], names: StringTable
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield version index, and library with version, from the chains of needed versions."""
    # a chain ends at a link of 0 bytes; the loader ignores the counts, so a wrong count must hide nothing
    if _VERNEED not in table:
        return
    need, version = struct.Struct("<HHIII"), struct.Struct("<IHHII")
    at, step, left = image.file_offset(table[_VERNEED]), 1, _MAX_VERSIONS
    while step:
        _, _, library, first, step = image.unpack(need, at)
        place, next_version = at, first
        while next_version and left:
            place += next_version
            _, _, index, name, next_version = image.unpack(version, place)
            yield index & 0x7FFF, (names.read(library), names.read(name))
            left -= 1
        if not left:
            raise DamagedElfError("more needed versions than a symbol can name")
        at += step
        left -= 1


SYSTEM_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib/aarch64-linux-gnu",
)
"""Where Debian and Red Hat keep shared libraries."""


@dataclass(frozen=True)
class Scope:
    """The defined symbols, and the libraries that are missing."""

    defined: frozenset[str]
    missing: tuple[str, ...]


def load_scope(needed: Sequence[str], interpreter: Path, folders: Sequence[Path]) -> Scope:
    """Search the folders for the `needed` libraries and, transitively, for the libraries that those need.

    Raises `DamagedElfError` if a library is damaged.
    """
    seen, missing = set[str](), set[str]()
    dynamic = _read_dynamic_table(interpreter)
    defined = set(dynamic.defined)  # with a static libpython, the interpreter itself defines Py*
    waiting = [*needed, *dynamic.needed]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            missing.add(name)
            continue
        dynamic = _read_dynamic_table(path)
        defined |= dynamic.defined
        waiting += dynamic.needed
    return Scope(frozenset(defined), tuple(sorted(missing)))


def _read_dynamic_table(path: Path) -> Dynamic:
    with path.open("rb") as file:
        return read_dynamic(ElfImage(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
