"""A kernel archive gives back what was packed, and from whatever else it is given, only what its sha256 confirms."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from code_object_bytes import code_object
from kernel_archive_factory import (
    KEY,
    OBJECTS,
    PARTS,
    fill,
    member,
    members_of,
    packed,
    repacked,
    unpacked,
    with_manifest,
)
from resource_limits import on_a_full_disk, run_limited
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.kernels.archive import (
    find_archives,
    pack_archive,
    read_archive_manifest,
    unpack_archive,
)
from wheelfactory.kernels.compiler.store import SetKey, Store

SET = "ck-62327233-rocm6.4-gfx942"
NAME = f"{SET}-{KEY.digest[:16]}.tar.zst"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return fill(tmp_path / "kernels")


@pytest.fixture(scope="module")
def packed_set(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The archive of a complete set."""
    folder = tmp_path_factory.mktemp("packed")
    return pack_archive(fill(folder / "kernels"), SET, folder, None).read_bytes()


@pytest.fixture
def archive(packed_set: bytes, tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(packed_set)
    return path


def contents(store: Store) -> dict[str, bytes]:
    return {source: store.object_path(source).read_bytes() for source in store.read_records()}


# packing


def test_a_shard_archive_contains_only_its_own_sources(store: Store, tmp_path: Path) -> None:
    names = ["fmha_fwd_d64", "fmha_fwd_d128"]
    assert sorted(read_archive_manifest(pack_archive(store, SET, tmp_path, "1/2", names)).objects) == sorted(names)

    with pytest.raises(BuildError, match="incomplete kernel set: 1 of 3 sources have no object: fmha_other"):
        pack_archive(store, SET, tmp_path, "1/2", [*names, "fmha_other"])


def test_a_part_of_a_shard_lists_its_expected_sources(tmp_path: Path) -> None:
    names, have = ["x_api", "fmha_fwd_d64", "fmha_fwd_d128"], ("fmha_bwd_d128", "fmha_fwd_d64", "x_api")
    store = fill(tmp_path / "kernels", {name: OBJECTS[name] for name in have})
    path = pack_archive(store, SET, tmp_path, "1/2", names, partial=True)

    assert path.name == f"{SET}-{KEY.digest[:16]}.shard-1-of-2.tar.zst"
    manifest = read_archive_manifest(path)
    assert (manifest.is_partial, manifest.shard) == (True, "1/2")
    assert (list(manifest.objects), list(manifest.expected)) == (["fmha_fwd_d64", "x_api"], sorted(names))


def test_an_empty_store_is_not_packed(tmp_path: Path) -> None:
    store = fill(tmp_path / "kernels", {})
    with pytest.raises(BuildError, match="no objects to pack"):
        pack_archive(store, SET, tmp_path / "out", "1/2", ["x_api"], partial=True)


def test_the_manifest_comes_first_and_each_content_once(tmp_path: Path) -> None:
    store = fill(tmp_path / "kernels", {**OBJECTS, "x_api": OBJECTS["fmha_fwd_d128"]})

    path = pack_archive(store, SET, tmp_path, None)
    names = [name for name, _ in members_of(path.read_bytes())]

    distinct = {hashlib.sha256(content).hexdigest() for content in contents(store).values()}
    assert len(distinct) == len(OBJECTS) - 1
    assert names == ["manifest.json", *(f"objects/{sha256}" for sha256 in sorted(distinct))]
    unpack_archive(path, tmp_path / "elsewhere")
    assert contents(Store(tmp_path / "elsewhere", KEY)) == contents(store)


def test_the_same_store_gives_the_same_bytes_without_owner_or_time(store: Store, archive: Path, tmp_path: Path) -> None:
    lines = store.journal.read_bytes().splitlines(keepends=True)
    store.journal.write_bytes(b"".join(reversed(lines)))

    again = pack_archive(store, SET, tmp_path / "again", None)
    assert (again.name, again.read_bytes()) == (NAME, archive.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(unpacked(archive.read_bytes()))) as tar:
        assert {(info.uid, info.gid, info.uname, info.mtime, info.mode) for info in tar} == {(0, 0, "", 0, 0o644)}


@pytest.mark.parametrize("content", [b"", b"forward" * 99, b"forwarD" * 100, b"forward" * 101, None])
@pytest.mark.parametrize("other", [b"api", OBJECTS["fmha_fwd_d128"]], ids=["its own", "shared"])
def test_a_damaged_object_is_named_and_nothing_is_packed(tmp_path: Path, content: bytes | None, other: bytes) -> None:
    store = fill(tmp_path / "kernels", {**OBJECTS, "a_fwd_copy": other}, SetKey(PARTS, ("a_fwd_copy", *OBJECTS)))
    path = store.object_path("fmha_fwd_d128")
    path.unlink() if content is None else path.write_bytes(content)

    with pytest.raises(BuildError, match=r"damaged object: .*fmha_fwd_d128\.o") as caught:
        pack_archive(store, SET, tmp_path / "out", None)

    assert "compile fmha_fwd_d128 again" in caught.value.hint
    assert list((tmp_path / "out").iterdir()) == []


# unpacking


@pytest.fixture
def elsewhere(tmp_path: Path) -> Store:
    """The store that an archive of the set is unpacked into."""
    return Store(tmp_path / "elsewhere", KEY)


def test_unpacking_restores_what_was_packed(store: Store, archive: Path, elsewhere: Store, tmp_path: Path) -> None:
    assert unpack_archive(archive, tmp_path / "elsewhere") == read_archive_manifest(archive)

    assert contents(elsewhere) == OBJECTS
    assert elsewhere.read_records() == store.read_records()
    assert SetKey.from_bytes((elsewhere.folder / "set.json").read_bytes()) == KEY
    assert pack_archive(elsewhere, SET, tmp_path / "again", None).read_bytes() == archive.read_bytes()
    assert {path.name for path in elsewhere.folder.iterdir()} == {"journal.jsonl", "objects", "set.json"}


def test_only_modified_objects_are_rewritten(archive: Path, elsewhere: Store, tmp_path: Path) -> None:
    unpack_archive(archive, tmp_path / "elsewhere")
    api = elsewhere.object_path("x_api")
    before = {source: elsewhere.object_path(source).stat().st_ino for source in OBJECTS}
    api.unlink()
    api.write_bytes(b"apo")

    unpack_archive(archive, tmp_path / "elsewhere")

    assert contents(elsewhere) == OBJECTS
    after = {source: elsewhere.object_path(source).stat().st_ino for source in OBJECTS}
    assert [source for source in OBJECTS if before[source] != after[source]] == ["x_api"]
    assert len(elsewhere.journal.read_text().splitlines()) == len(OBJECTS) + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"device code" * 99, "no ELF magic", id="text"),
        pytest.param(code_object("gfx90a"), "its header is of another arch", id="another arch"),
        pytest.param(code_object(code=b"\0__hip_cuid_5ca1ab1e\0"), "compiled from another source", id="another source"),
    ],
)
def test_an_object_that_is_not_what_the_manifest_says_is_left_out(
    content: bytes, message: str, elsewhere: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = pack_archive(fill(tmp_path / "kernels", {**OBJECTS, "fmha_fwd_d128": content}), SET, tmp_path, None)

    assert unpack_archive(path, tmp_path / "elsewhere").is_partial

    assert elsewhere.read_records().keys() == OBJECTS.keys() - {"fmha_fwd_d128"}
    assert f"fmha_fwd_d128 of the archive is left out: {message}" in caplog.text


def test_a_damaged_object_is_left_out_and_reported_unless_the_store_has_a_good_one(
    archive: Path, store: Store, elsewhere: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = members_of(archive.read_bytes())
    archive.write_bytes(repacked([(name, content.replace(b"forward", b"forwarD")) for name, content in members]))

    assert unpack_archive(archive, store.folder.parent).is_partial
    assert "are damaged" not in caplog.text
    assert contents(store) == OBJECTS

    assert unpack_archive(archive, tmp_path / "elsewhere").objects.keys() == OBJECTS.keys() - {"fmha_fwd_d128"}

    assert f"{archive.name}: 1 objects are damaged and will be compiled again" in caplog.text
    assert contents(elsewhere) == {source: OBJECTS[source] for source in OBJECTS if source != "fmha_fwd_d128"}
    assert not elsewhere.object_path("fmha_fwd_d128").exists()


def test_a_truncated_archive_puts_only_good_objects_into_the_store(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    for size in (0, 1, 3, 4, 9, len(whole) // 2, len(whole) - 30, len(whole) - 4, len(whole) - 1):
        archive.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"damaged kernel archive.*truncated"):
            unpack_archive(archive, tmp_path / "elsewhere")

    found = contents(Store(tmp_path / "elsewhere", KEY))
    assert found == {source: OBJECTS[source] for source in found}


@pytest.mark.parametrize("at", [5, 60, 300, -200, -20, -5, -1])
def test_a_changed_byte_never_gets_a_wrong_object_into_a_store(archive: Path, tmp_path: Path, at: int) -> None:
    data = bytearray(archive.read_bytes())
    data[at] ^= 1
    archive.write_bytes(data)

    with pytest.raises(InputError, match="damaged kernel"):
        unpack_archive(archive, tmp_path / "elsewhere")

    found = contents(Store(tmp_path / "elsewhere", KEY))
    assert found == {source: OBJECTS[source] for source in found}


MANIFEST = ("manifest.json", b"{}")


def objects_as(**options: Any) -> Callable[[bytes], bytes]:
    """The archive whose first object is a member of another kind."""

    def change(archive: bytes) -> bytes:
        manifest, (name, _), *_others = members_of(archive)
        return packed(member(*manifest), member(**{"name": name, **options}))

    return change


FOREIGN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "it is truncated"),
    "a plain tar": (unpacked, "not a valid zstandard stream"),
    "no tar inside": (lambda _: packed(b"x" * 2000), "it contains no valid tar archive"),
    "an empty tar": (lambda _: packed(), "it ends before its last member"),
    "an empty frame": (lambda _: packed(end=b""), "it ends before its last member"),
    "a skippable frame": (lambda _: struct.pack("<II", 0x184D2A50, 4) + b"abcd", "it ends before its last member"),
    "two frames": (lambda archive: archive * 2, "it has data after its end"),
    "more behind": (lambda archive: archive + b"\0", "it has data after its end"),
    "more members": (
        lambda archive: repacked([*members_of(archive), ("objects/x", b"")]),
        "it has data after its last member",
    ),
    "more zeros": (lambda archive: packed(unpacked(archive)), "it has data after its"),
    "no end": (lambda archive: packed(unpacked(archive)[:-1024], end=b""), "it ends before its last member"),
    "manifest not first": (lambda archive: repacked(members_of(archive)[1:]), "its first member is objects/"),
    "no manifest": (lambda _: repacked([("a.o", b"")]), "its first member is a.o"),
    "a manifest of nothing": (lambda _: repacked([MANIFEST]), "damaged kernel manifest"),
    "a manifest that is no JSON": (lambda _: repacked([("manifest.json", b"\xff")]), "damaged kernel manifest"),
    "a deep manifest": (lambda _: repacked([("manifest.json", b"[" * 100_000)]), "damaged kernel manifest"),
    "a huge manifest": (lambda _: packed(member("manifest.json", b"{}", size=1 << 32)), "its manifest has 4294967296"),
    "a manifest below 0": (lambda _: packed(member("manifest.json", b"{}", size=-5)), "negative size"),
    "a link": (objects_as(kind=tarfile.SYMTYPE), "is no regular file"),
    "a hard link": (objects_as(kind=tarfile.LNKTYPE), "is no regular file"),
    "a device": (objects_as(kind=tarfile.CHRTYPE), "is no regular file"),
    "a long name": (objects_as(name="a" * 200), "is no regular file"),
    "a name that leaves": (objects_as(name="objects/../../x"), "objects/../../x of 0 bytes where its manifest has"),
    "an absolute name": (objects_as(name="/etc/x"), "/etc/x of 0 bytes where its manifest has"),
    "another size": (objects_as(content=b"12"), "of 2 bytes where its manifest has"),
    "a huge size": (objects_as(size=1 << 62), "bytes where its manifest has"),
    "swapped objects": (
        lambda archive: repacked([members_of(archive)[place] for place in (0, 2, 1, 3, 4)]),
        "where its manifest has",
    ),
    "an object twice": (
        lambda archive: repacked([members_of(archive)[place] for place in (0, 1, 1, 2, 3, 4)]),
        "where its manifest has",
    ),
    "rubbish between": (
        lambda archive: packed(member(*members_of(archive)[0])[:-1] + b"x"),
        "it has data between its members",
    ),
}


@pytest.mark.parametrize(("change", "why"), FOREIGN.values(), ids=FOREIGN)
def test_an_invalid_archive_is_refused_with_the_reason(
    archive: Path, tmp_path: Path, change: Callable[[bytes], bytes], why: str
) -> None:
    archive.write_bytes(change(archive.read_bytes()))

    with pytest.raises(InputError) as caught:
        unpack_archive(archive, tmp_path / "elsewhere")

    assert why in str(caught.value)
    assert str(archive) in caught.value.which
    assert caught.value.hint


def objects(**changes: Any) -> dict[str, Any]:
    """The objects of a manifest, with other values for one of them."""
    entry = {"sha256": "0" * 64, "size": 1, "cpu_s": 1, "peak_mib": 1, "targets": ["gfx942"], "start": 1, "end": 1}
    return {"x_api": {**entry, "source": "x_api", **changes}}


def key(**changes: Any) -> dict[str, Any]:
    """The key of a manifest, with changes."""
    return {"set_key": {**json.loads(KEY.to_bytes()), **changes}}


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "another format": (key(format=1), "not a kernel set of format 3"),
    "a source outside": (key(sources=["../x"]), "not a kernel set"),
    "a source twice": (key(sources=["a", "a"]), "its sources are not sorted and unique"),
    "sources not sorted": (key(sources=["b", "a"]), "its sources are not sorted and unique"),
    "another source": (key(sources=["a"]), "its expected sources are not"),
    "more": ({"more": 1}, "'more': unknown key"),
    "a set outside": ({"set_id": "../x"}, "its kernel set id is invalid"),
    "a shard of fewer": ({"shard": "3/2"}, "the last N/N"),
    "a shard outside": ({"shard": "../x"}, "not a shard"),
    "a shard in other words": ({"shard": "01/2"}, "its shard is not of the form 2/8"),
    "a shard of other sources": ({"shard": "1/2", "expected": ["a"]}, "its expected sources are not"),
    "a shard in disorder": ({"shard": "1/2", "expected": ["x_api", "fmha_fwd_d64"]}, "its expected sources are not"),
    "a source of a shard twice": ({"shard": "1/2", "expected": ["x_api", "x_api"]}, "its expected sources are not"),
    "objects of another shard": ({"shard": "1/2", "expected": ["x_api"]}, "not of this set: fmha_bwd_d128"),
    "a whole set with a shard": ({"expected": ["x_api"]}, "its expected sources are not"),
    "an object of another name": ({"objects": objects(source="y_api")}, "an object is not of this set: x_api"),
    "a sha256 outside": ({"objects": objects(sha256="../x")}, "not a record of an object: x_api"),
    "a negative size": ({"objects": objects(size=-1)}, "not a record of an object: x_api"),
    "a size too large": ({"objects": objects(size=1 << 33)}, "x_api has 8589934592 bytes, the limit is"),
    "two sizes of a content": (
        {"objects": {**objects(), "fmha_fwd_d64": objects(size=2, source="fmha_fwd_d64")["x_api"]}},
        "two sizes for one sha256: fmha_fwd_d64",
    ),
}


@pytest.mark.parametrize(("changes", "why"), ODD.values(), ids=ODD)
def test_an_inconsistent_manifest_is_refused(archive: Path, tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    archive.write_bytes(with_manifest(archive.read_bytes(), **changes))

    with pytest.raises(InputError, match="damaged kernel manifest") as caught:
        unpack_archive(archive, tmp_path / "elsewhere")
    assert why in str(caught.value)
    assert not (tmp_path / "elsewhere").exists()


def claiming(size: int, content: bytes) -> bytes:
    """A whole and true archive of one content, or one that claims to be."""
    sha256 = hashlib.sha256(content).hexdigest()
    manifest = {"set_id": "x", "shard": None, "expected": list(OBJECTS), **key()}
    text = json.dumps({**manifest, "objects": objects(size=size, sha256=sha256)})
    return packed(member("manifest.json", text.encode()), member(f"objects/{sha256}", content, size=size))


def test_a_decompression_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.tar.zst").write_bytes(claiming(1 << 27, bytes(1 << 27)))

    found = run_limited(lambda: unpack_archive(tmp_path / "a.tar.zst", tmp_path / "kernels"), megabytes=400)

    assert "it would unpack to 134217728 bytes, over 200 times its size" in found
    assert not (tmp_path / "kernels").exists()


def test_a_shared_content_counts_once_per_source_against_the_size_limit(tmp_path: Path) -> None:
    sources = ("a", "b", "c", "d", "e")
    store = fill(tmp_path / "k", dict.fromkeys(sources, bytes(1 << 24)), SetKey({}, sources))
    path = pack_archive(store, SET, tmp_path, None)

    with pytest.raises(InputError, match="it would unpack to 83886080 bytes"):
        unpack_archive(path, tmp_path / "elsewhere")


@pytest.mark.parametrize("name", ["manifest.json", "x"])
def test_a_bomb_behind_a_header_takes_little_memory(tmp_path: Path, name: str) -> None:
    bomb = packed(member(name, bytes(1 << 29)), end=b"")
    (tmp_path / "a.tar.zst").write_bytes(bomb)

    found = run_limited(lambda: unpack_archive(tmp_path / "a.tar.zst", tmp_path / "kernels"), megabytes=400)

    assert found.startswith("InputError: damaged kernel archive")


def millions() -> dict[str, bytes]:
    """Manifests just below the limit of their size."""
    rest = b',"set_id":"x","shard":null,"expected":[],"objects":{}}'
    return {
        "sources": b'{"set_key":{"parts":{},"sources":[' + b'"a",' * 2_000_000 + b'"a"]}' + rest,
        "parts": b'{"set_key":{"sources":["b","a"],"parts":{"x":[' + b"[]," * 2_700_000 + b"[]]}}" + rest,
    }


@pytest.mark.parametrize("kind", ["sources", pytest.param("parts", marks=pytest.mark.slow)])
def test_a_manifest_of_millions_of_values_takes_little_memory(archive: Path, kind: str) -> None:
    archive.write_bytes(repacked([("manifest.json", millions()[kind])]))

    # it takes a second of CPU time, but once, among all tests, 10 were not enough
    found = run_limited(lambda: read_archive_manifest(archive), seconds=60, megabytes=512)

    assert found.startswith("InputError: damaged kernel manifest")


def test_a_missing_archive_is_an_error(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "a.tar.zst", "no such kernel archive"), (tmp_path, "cannot read kernel archive")):
        with pytest.raises(InputError, match=what):
            read_archive_manifest(path)


# no room


def test_a_full_disk_leaves_no_archive(tmp_path: Path) -> None:
    store = fill(tmp_path / "kernels", {"x_api": os.urandom(1 << 20)})

    found = on_a_full_disk(lambda: pack_archive(store, SET, tmp_path / "out", "1/2"), 1 << 19)

    assert found.startswith(f"FactoryError: cannot write kernels: {tmp_path}")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_leaves_no_object_in_the_store(tmp_path: Path) -> None:
    small, large = sorted((os.urandom(1 << 10), os.urandom(1 << 20)), key=len)
    objects = {"fmha_fwd_d64": small, "x_api": large}
    path = pack_archive(fill(tmp_path / "kernels", objects), SET, tmp_path, "1/2")

    found = on_a_full_disk(lambda: unpack_archive(path, tmp_path / "elsewhere"), 1 << 19)

    assert found.startswith(f"FactoryError: cannot write kernels: {tmp_path}")
    store = Store(tmp_path / "elsewhere", KEY)
    kept = contents(store)
    assert kept == {source: objects[source] for source in kept}
    assert not store.object_path("x_api").exists()
    assert {file.name for file in store.folder.iterdir()} <= {"journal.jsonl", "objects", "set.json"}


# finding


def test_find_archives_returns_complete_sets_and_shards(tmp_path: Path, archive: Path) -> None:
    paths = [pack_archive(fill(tmp_path / "more", {"x_api": b"api"}), SET, tmp_path, f"{index}/3") for index in (1, 2)]
    for name in (f"{SET}-x.tar.zst", f"{SET}-{'0' * 16}.tar", f"more-{archive.name}", f"{SET}-x-{'0' * 16}.tar.zst"):
        (tmp_path / name).touch()

    assert find_archives(tmp_path, SET) == tuple(sorted([archive, *paths]))
    assert find_archives(tmp_path / "none", SET) == ()
