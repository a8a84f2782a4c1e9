"""The dynamic table of an ELF file, read as the loader does: by segment and address, whatever sections say."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from wheelfactory.elf.image import PT_DYNAMIC, DamagedElfError, Image, Names

_NULL, _NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 0, 1, 4, 5, 6, 10, 14, 15, 29
_GNU_HASH, _VERSYM, _VERNEED, _VERNEED_COUNT = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_WEAK = 2


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol without a definition; `library` and `version` are known only if it is versioned."""

    name: str
    weak: bool
    library: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Dynamic:
    """What a file says to the loader."""

    soname: str | None = None
    needed: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    undefined: tuple[Symbol, ...] = ()
    defined: frozenset[str] = frozenset()
    versions: tuple[tuple[str, str], ...] = ()
    """Library and version of each version it needs, such as ``("libc.so.6", "GLIBC_2.14")``."""


def read_dynamic(image: Image) -> Dynamic:
    """The dynamic table of a file; an empty one for an object file or a static program."""
    entries = list(_entries(image))
    if not entries:
        return Dynamic()
    table = dict(reversed(entries))  # of a tag that stands twice the loader takes the last
    if _STRTAB not in table:
        raise DamagedElfError("a dynamic table without strings")
    names = Names(image.bytes_at(image.offset_of(table[_STRTAB]), table.get(_STRSZ, 0)))
    soname = table.get(_SONAME)
    paths = [names.at(value) for tag, value in entries if tag in (_RPATH, _RUNPATH)]
    needs = dict(_needed_versions(image, table, names))
    undefined, defined = _symbols(image, table, names, needs)
    return Dynamic(
        soname=None if soname is None else names.at(soname),
        needed=tuple(names.at(value) for tag, value in entries if tag == _NEEDED),
        runpath=tuple(path for text in paths for path in text.split(":")),
        undefined=undefined,
        defined=defined,
        versions=tuple(sorted(set(needs.values()))),
    )


def _entries(image: Image) -> Iterator[tuple[int, int]]:
    for segment in image.segments:
        if segment.type == PT_DYNAMIC:
            form = image.layout.dynamic
            for tag, value in image.table(form, segment.offset, segment.file_size // form.size):
                if tag == _NULL:
                    break
                yield tag, value


def _symbols(
    image: Image, table: dict[int, int], names: Names, needs: dict[int, tuple[str, str]]
) -> tuple[tuple[Symbol, ...], frozenset[str]]:
    if _SYMTAB not in table:
        return (), frozenset()
    count = _symbol_count(image, table)
    rows = image.table(image.layout.symbol, image.offset_of(table[_SYMTAB]), count)
    versions = _version_indices(image, table, count)
    undefined, defined = [], set()
    for row, version in zip(rows, versions, strict=True):
        name, info, section = (row[0], row[1], row[3]) if image.layout.is_64 else (row[0], row[3], row[5])
        bind = info >> 4
        if not name or not bind:  # no name, or local
            continue
        if section:
            defined.add(names.at(name))
        else:
            library, wanted = needs.get(version & 0x7FFF, (None, None))
            undefined.append(Symbol(names.at(name), bind == _WEAK, library, wanted))
    return tuple(sorted(undefined, key=lambda symbol: symbol.name)), frozenset(defined)


def _symbol_count(image: Image, table: dict[int, int]) -> int:
    """The loader needs no count, so it stands only in the hash tables that find a symbol by its name."""
    word = image.layout.byte_order
    if _HASH in table:
        _, count = image.unpack(struct.Struct(f"{word}II"), image.offset_of(table[_HASH]))
        return int(count)
    if _GNU_HASH not in table:
        return 0
    start = image.offset_of(table[_GNU_HASH])
    buckets, first, bloom, _ = image.unpack(struct.Struct(f"{word}IIII"), start)
    buckets_at = start + 16 + bloom * (8 if image.layout.is_64 else 4)
    one = struct.Struct(f"{word}I")
    last = max((value for (value,) in image.table(one, buckets_at, buckets)), default=0)
    if last < first:  # nothing is exported
        return int(first)
    chains = buckets_at + 4 * buckets
    while not image.unpack(one, chains + 4 * (last - first))[0] & 1:  # the lowest bit ends a chain
        last += 1
    return int(last) + 1


def _version_indices(image: Image, table: dict[int, int], count: int) -> Iterator[int]:
    if _VERSYM not in table:
        return iter([0] * count)
    form = struct.Struct(f"{image.layout.byte_order}H")
    return (value for (value,) in image.table(form, image.offset_of(table[_VERSYM]), count))


def _needed_versions(image: Image, table: dict[int, int], names: Names) -> Iterator[tuple[int, tuple[str, str]]]:
    """Version index -> library and version, from the chains of needed versions."""
    if _VERNEED not in table:
        return
    need, version = (struct.Struct(image.layout.byte_order + text) for text in ("HHIII", "IHHII"))
    at = image.offset_of(table[_VERNEED])
    for _ in range(min(table.get(_VERNEED_COUNT, 0), len(image.data) // need.size)):
        _, count, library, first, step = image.unpack(need, at)
        place = at + first
        for _ in range(count):
            _, _, index, name, next_version = image.unpack(version, place)
            yield index & 0x7FFF, (names.at(library), names.at(name))
            if not next_version:
                break
            place += next_version
        if not step:
            break
        at += step
