"""Make zip archives byte by byte, so that every redundant field can have another value."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NONE: Mapping[str, Any] = {}
STREAMED = 0x8
"""The flag of a member with a descriptor after it."""


@dataclass(frozen=True)
class Member:
    """A file of an archive; `local` and `central` replace fields of its local header and of its directory entry."""

    name: str
    data: bytes = b""
    method: int = 8
    flags: int = 0
    mode: int = 0o100644
    packed: bytes | None = None
    """Its packed bytes, if they are not those of `data`."""
    before: bytes = b""
    """Bytes between the previous member and this one."""
    descriptor: bytes | None = None
    """Bytes after it, instead of the descriptor that the flags require."""
    local_extra: bytes = b""
    extra: bytes = b""
    local: Mapping[str, Any] = field(default_factory=dict)
    central: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Facts:
    flags: int
    method: int
    crc: int
    packed: int
    unpacked: int
    name: bytes
    offset: int = 0


def deflated(data: bytes) -> bytes:
    """Bytes as a deflated member has them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def zip_bytes(
    members: Sequence[Member],
    *,
    wide: bool = False,
    gap: bytes = b"",
    end: Mapping[str, int] = NONE,
    comment: bytes = b"",
) -> bytes:
    """An archive of these members; `wide` adds a ZIP64 end record, `end` replaces fields of the end records."""
    body, directory = bytearray(), bytearray()  # some tests make tens of thousands of members
    for member in members:
        body += member.before
        content, facts = _facts(member, len(body))
        directory += _central(member, facts)
        body += _local(member, facts) + content + _descriptor(member, facts)
    body += gap
    made = bytes(body + directory)
    totals = {"members": len(members), "size": len(directory), "offset": len(body)} | dict(end)
    return made + (_wide_end(totals, len(made)) if wide else b"") + _end(totals, comment)


def _facts(member: Member, offset: int) -> tuple[bytes, _Facts]:
    content = member.packed
    if content is None:
        content = deflated(member.data) if member.method == 8 else member.data
    name = member.name.encode()
    flags = member.flags | (0 if name.isascii() else 0x800)
    return content, _Facts(flags, member.method, zlib.crc32(member.data), len(content), len(member.data), name, offset)


def _with_changes(facts: _Facts, changes: Mapping[str, Any]) -> _Facts:
    return _Facts(**{**vars(facts), **changes})


def _local(member: Member, facts: _Facts) -> bytes:
    streamed = {"crc": 0, "packed": 0, "unpacked": 0} if facts.flags & STREAMED else {}
    header = _with_changes(facts, {**streamed, **member.local})
    lengths = (len(header.name), len(member.local_extra))
    fields = (20, header.flags, header.method, 0, 0x21, header.crc, header.packed, header.unpacked, *lengths)
    return struct.pack("<4s5HIIIHH", b"PK\x03\x04", *fields) + header.name + member.local_extra


def _descriptor(member: Member, facts: _Facts) -> bytes:
    if member.descriptor is not None:
        return member.descriptor
    if not facts.flags & STREAMED:
        return b""
    return struct.pack("<4sIII", b"PK\x07\x08", facts.crc, facts.packed, facts.unpacked)


def _central(member: Member, facts: _Facts) -> bytes:
    header = _with_changes(facts, member.central)
    fields = (0x314, 20, header.flags, header.method, 0, 0x21, header.crc, header.packed, header.unpacked)
    more = (len(header.name), len(member.extra), 0, 0, 0, member.mode << 16, header.offset)
    return struct.pack("<4s6HIII5HII", b"PK\x01\x02", *fields, *more) + header.name + member.extra


def _wide_end(totals: Mapping[str, int], at: int) -> bytes:
    numbers = [totals.get(f"wide {name}", totals[name]) for name in ("members", "members", "size", "offset")]
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, *numbers)
    return record + struct.pack("<4sIQI", b"PK\x06\x07", 0, totals.get("wide place", at), totals.get("disks", 1))


def _end(totals: Mapping[str, int], comment: bytes) -> bytes:
    counts = (totals.get("disk", 0), 0, totals.get("here", totals["members"]), totals["members"])
    length = totals.get("comment", len(comment))
    return struct.pack("<4s4HIIH", b"PK\x05\x06", *counts, totals["size"], totals["offset"], length) + comment
