"""Kernel archives for tests: valid ones made from a store, damaged ones made byte by byte."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import zstandard

from code_object_bytes import code_object
from wheelfactory.emulator.ck_calls import CallReport
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store
from wheelfactory.kernels.kernel_set import Proof

PARTS: Mapping[str, Any] = {
    "compiler": {"version": "HIP 6.4", "sha256": "ab" * 32},
    "flags": ["-O3", "-DX=1"],
    "environment": {},
    "targets": ["gfx942"],
    "sources": "12" * 32,
    "headers": "34" * 32,
}
OBJECTS = {
    name: code_object(code=code)
    for name, code in [
        ("fmha_bwd_d128", b"backward" * 90),
        ("fmha_fwd_d128", b"forward" * 100),
        ("fmha_fwd_d64", b""),
        ("x_api", b"api"),
    ]
}
KEY = SetKey(PARTS, tuple(OBJECTS))


def proof_of(set_id: str, of: SetKey = KEY, **changes: Any) -> Proof:
    """Return a proof of one executed kernel, with changes."""
    proof = Proof(
        set=set_id, key=of.digest, host_key="56" * 32, executed_by="emulator", archs=("gfx942",), kernels=3,
        executed={"kernel": of.sources[0]}, calls=(CallReport("call", ("kernel",), 1, 1.0, (), ()),), faults=(),
    )  # fmt: skip
    return replace(proof, **changes)


def fill(kernels: Path, objects: Mapping[str, bytes] = OBJECTS, key: SetKey = KEY) -> Store:
    """Fill a store with these objects; each one took a second longer than the previous."""
    store = Store(kernels, key)
    store.create()
    built, targets = store.folder / "built.o", tuple(key.parts.get("targets", ("gfx942",)))
    for number, (source, content) in enumerate(objects.items()):
        built.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        costs = (40.25 + number, 900 + number, 100.0, 140.5 + number)
        store.save_object(built, ObjectRecord(source, targets, sha256, len(content), *costs))
    built.unlink(missing_ok=True)
    return store


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, size: int | None = None) -> bytes:
    """Return a member of a tar; `size` overrides the size of its content."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if size is None else size
    info.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def members_of(archive: bytes) -> list[tuple[str, bytes]]:
    """Return the members of a valid archive."""
    with tarfile.open(fileobj=io.BytesIO(unpacked(archive))) as tar:
        return [(info.name, _content(tar, info)) for info in tar]


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(info)
    assert file
    return file.read()


def unpacked(archive: bytes, most: int = 1 << 22) -> bytes:
    """Return the tar inside an archive. Raises `zstandard.ZstdError`."""
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(archive).read(most)


def packed(*members: bytes, end: bytes = bytes(1024)) -> bytes:
    """Return the archive of these members."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(b"".join(members) + end)


def repacked(members: Sequence[tuple[str, bytes]]) -> bytes:
    """Return the archive of these names and contents."""
    return packed(*(member(name, content) for name, content in members))


def with_manifest(archive: bytes, **changes: Any) -> bytes:
    """Return the archive with changed values in its manifest."""
    (name, manifest), *others = members_of(archive)
    return repacked([(name, json.dumps({**json.loads(manifest), **changes}).encode()), *others])
