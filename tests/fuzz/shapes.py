"""Mutations that keep an input well-formed, so that the fuzzer gets past checksums and packed sizes."""

from __future__ import annotations

import io
import json
import math
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import yaml
import zstandard

from elf_factory import packed
from kernel_archive_factory import members_of, repacked, unpacked
from kernel_archive_factory import packed as packed_tar
from wheel_factory import record_text
from wheelfactory.wheel.elf.offload import COMPRESSED_MAGIC

Mutate = Callable[[bytes], bytes]
"""Mutates bytes without a format."""

_NUMBERS = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
_UNUSUAL: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, "", "x", "2.8.3", [], {}, [[]], 1 << 70, "\ud800", "\u2028", math.nan, math.inf),
    *("..", "../../x", "javascript:x", "http://a.example/x", "https://a.example/x", "a\x1b[2J", "\u202e", 3, 10**4000),
)


def change_word(data: bytes, random: Random, _mutate: Mutate) -> bytes:
    """Put a boundary value or a piece of the input at a multiple of its size, where numbers are."""
    size = random.choice((2, 4, 8))
    if len(data) < size:
        raise ValueError
    at = random.randrange(len(data) // size) * size
    other = random.randrange(len(data) - size + 1)
    number = random.choice(_NUMBERS) % (1 << 8 * size)
    word = random.choice((number.to_bytes(size, "little"), data[other : other + size]))
    return data[:at] + word + data[at + size :]


def change_bundle(data: bytes, random: Random, mutate: Mutate) -> bytes:
    """Change the content of a compressed bundle and compress it again; change a number of a plain one."""
    if not data.startswith(COMPRESSED_MAGIC):
        return change_word(data, random, mutate)
    version, method = struct.unpack_from("<HH", data.ljust(8, b"\0"), 4)
    body = data[{1: 20, 2: 24}.get(version, 32) :]
    try:
        unpacked = zlib.decompressobj().decompress(body, 1 << 16) if method == 0 else _unpack(body)
    except (zlib.error, zstandard.ZstdError) as error:
        raise ValueError from error
    changed = random.choice((mutate(unpacked), change_word(unpacked, random, mutate)))
    return packed(changed, random.choice((1, 2, 3)), random.choice(("zlib", "zstd"))) + data[:0]


def _unpack(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor(max_window_size=1 << 20).stream_reader(body).read(1 << 16)


def change_wheel(data: bytes, random: Random, mutate: Mutate) -> bytes:
    """Change the name, content or number of members; update RECORD half of the time."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist() if info.file_size < 1 << 16]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError, IndexError) as error:
        raise ValueError from error
    if not members:
        raise ValueError
    place = random.randrange(len(members))
    name, content = members[place]
    members[place : place + 1] = random.choice(
        (
            [(name, mutate(content))],
            [(name, mutate(content))],
            [(_changed_name(name, mutate), content)],
            [],
            2 * [members[place]],
        )
    )
    return _zip(members, random)


def _changed_name(name: str, mutate: Mutate) -> str:
    return mutate(name.encode()).decode("utf-8", "replace")


def _zip(members: list[tuple[str, bytes]], random: Random) -> bytes:
    if random.random() < 0.5:
        itself = next((name for name, _ in members if name.endswith("/RECORD")), "RECORD")
        files = {name: content for name, content in members if name != itself}
        members = [*files.items(), (itself, record_text(files, itself).encode("utf-8", "replace"))]
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # duplicate members are intended
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name or "x"), content, random.choice((0, 8)))
    return file.getvalue()


def change_kernels(data: bytes, random: Random, mutate: Mutate) -> bytes:
    """Change a byte of the tar, or a value of the manifest, or drop, repeat or change a member."""
    try:
        tar = unpacked(data, 1 << 18)
        if random.random() < 0.3:
            return packed_tar(random.choice((mutate(tar), change_word(tar, random, mutate))), end=b"")
        members = members_of(data)
    except (zstandard.ZstdError, tarfile.TarError, MemoryError) as error:
        raise ValueError from error
    if not members:
        raise ValueError
    place = random.randrange(len(members))
    name, content = members[place]
    if place == 0:
        members[0] = (name, json.dumps(_with_another(json.loads(content), random, mutate)).encode())
    else:
        other = random.choice(
            ([], 2 * [members[place]], [(_changed_name(name, mutate), content)], [(name, mutate(content))])
        )
        members[place : place + 1] = other
    return repacked(members)


def change_lines(data: bytes, random: Random, mutate: Mutate) -> bytes:
    """Change, drop, repeat, indent or move a line."""
    lines = data.splitlines(keepends=True)
    if not lines:
        raise ValueError
    place, other = random.randrange(len(lines)), random.randrange(len(lines))
    line = lines[place]
    lines[place] = random.choice((mutate(line), b"", 2 * line, b"  " + line, line.removeprefix(b"  "), lines[other]))
    return b"".join(lines)


def change_matrix(data: bytes, random: Random, mutate: Mutate) -> bytes:
    """Change a line, or replace or change a value or a key. JSON is YAML, too."""
    if random.random() < 0.3:
        return change_lines(data, random, mutate)
    change = _with_another_key if random.random() < 0.2 else _with_another
    try:
        return json.dumps(change(yaml.load(data, Loader=yaml.CSafeLoader), random, mutate)).encode()
    except (
        yaml.YAMLError,
        RecursionError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:  # PyYAML raises any of these for unusual tags
        raise ValueError from error


def _with_another_key(value: Any, random: Random, mutate: Mutate) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    key = random.choice(list(value))
    if random.random() < 0.6:
        return {**value, key: _with_another_key(value[key], random, mutate)}
    changed = _changed_name(str(key), mutate)
    return {changed if name == key else name: inner for name, inner in value.items()}


def change_json(data: bytes, random: Random, mutate: Mutate) -> bytes:
    """Replace or change a value in a line of JSON."""
    lines = data.splitlines()
    if not lines:
        raise ValueError
    place = random.randrange(len(lines))
    try:
        value = _with_another(json.loads(lines[place]), random, mutate)
    except RecursionError as error:
        raise ValueError from error
    lines[place] = json.dumps(value).encode()
    return b"\n".join([*lines, b""])


def _with_another(value: Any, random: Random, mutate: Mutate) -> Any:
    if isinstance(value, (dict, list)) and value and random.random() < 0.8:
        key: Any = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        changed = _with_another(value[key], random, mutate)
        if isinstance(value, list):
            return [*value[:key], changed, *value[key + 1 :]]
        return {**value, key: changed}
    if isinstance(value, str) and random.random() < 0.5:
        return mutate(value.encode("utf-8", "replace")).decode("utf-8", "replace")
    return random.choice(_UNUSUAL)
