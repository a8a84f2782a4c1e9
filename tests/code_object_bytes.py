"""Build code objects byte by byte. The fake compiler imports this in every compile, so it imports little itself."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import accumulate

# the archs of tests, by the lowest byte of e_flags; `wheelfactory.wheel.elf.code_object` has all
_NUMBERS = {
    "gfx908": 0x30,
    "gfx90a": 0x3F,
    "gfx942": 0x4C,
    "gfx950": 0x4F,
    "gfx1030": 0x36,
    "gfx1100": 0x41,
    "gfx1201": 0x4E,
    "gfx11-generic": 0x54,
}

KERNELS = ("_Z3addPf", "_ZN2ck3mulEPf")


def code_object(
    target: str = "gfx942",
    size: int = 0,
    *,
    kernels: tuple[str, ...] = KERNELS,
    code: bytes = b"",
    note: bytes | None = None,
    symbols: tuple[str, ...] | None = None,
    entry: int = 64,
) -> bytes:
    """Return a code object as lld lays it out, of at least `size` bytes: kernels of 64 bytes, then `code`.

    `note` replaces the one of target and kernels, `symbols` the names of kernels in the table; `entry` is how far the
    code of each kernel is from the place where its descriptor says.
    """
    rows = b"".join(b"\x82\xa5.name%b\xa7.symbol%b" % (_packed(name), _packed(f"{name}.kd")) for name in kernels)
    texts = b"\x82\xaeamdhsa.kernels" + bytes([0x90 | len(kernels)]) + rows
    texts += b"\xadamdhsa.target" + _packed(f"amdgcn-amd-amdhsa--{target}")
    texts = texts if note is None else note
    names = [name for kernel in (kernels if symbols is None else symbols) for name in (kernel, f"{kernel}.kd")]
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    contents = [
        (".note", 7, struct.pack("<III8s", 7, len(texts), 32, b"AMDGPU") + texts + bytes(-len(texts) % 4)),
        (".dynsym", 11, bytes(24 * (1 + len(names)))),
        (".dynstr", 3, strings),
        (".rodata", 1, bytes(64 * (len(names) // 2))),
        (".text", 1, bytes(64 * (len(names) // 2)) + code),
        (".shstrtab", 3, b"\0.note\0.dynsym\0.dynstr\0.rodata\0.text\0.shstrtab\0"),
    ]
    more = size - 64 - 56 - 64 * 7 - sum(len(data) for *_, data in contents)
    contents[4] = (".text", 1, contents[4][2] + b"*" * max(more, 0))
    at = list(accumulate((len(data) for *_, data in contents), initial=64 + 56))
    symbol_rows, descriptors, name_at = bytes(24), b"", 1
    for number, name in enumerate(names):
        place, kind = divmod(number, 2)
        address = at[3 + (not kind)] + 64 * place
        symbol_rows += struct.pack("<IBBHQQ", name_at, 0x11 if kind else 0x12, 3, 4 + (not kind), address, 64)
        name_at += len(name) + 1
        descriptors += struct.pack("<16xq40x", at[4] - at[3] + entry - 64) if kind else b""
    contents[1], contents[3] = (".dynsym", 11, symbol_rows), (".rodata", 1, descriptors)
    headers, head = bytes(64), contents[5][2]
    for start, (name, kind, data) in zip(at, contents, strict=False):
        is_symbols = kind == 11
        numbers = (kind, 2, start, start, len(data), 3 * is_symbols, 0, 1, 24 * is_symbols)
        headers += struct.pack("<IIQQQQIIQQ", head.index(name.encode()), *numbers)
    ident = b"\x7fELF" + bytes([2, 1, 1, 64, 4]) + bytes(7)
    number = _NUMBERS[target.partition(":")[0]]
    header = struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, at[-1], number, 64, 56, 1, 64, 7, 6)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at[-1], at[-1], 4096)
    return ident + header + segment + b"".join(data for *_, data in contents) + headers


def _packed(text: str) -> bytes:
    """Return a text in MessagePack."""
    return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text.encode()


def bundle(entries: Iterable[tuple[str, bytes]], alignment: int = 4096) -> bytes:
    """Return an uncompressed offload bundle of ids and contents."""
    entries = list(entries)
    at = 32 + sum(24 + len(name) for name, _ in entries)
    table, body = b"", b""
    for name, content in entries:
        body += bytes(-(at + len(body)) % alignment)
        table += struct.pack("<QQQ", at + len(body), len(content), len(name)) + name.encode()
        body += content
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + body
