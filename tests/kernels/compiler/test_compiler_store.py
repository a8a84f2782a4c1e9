"""Objects of a kernel set are stored completely or not at all, and damage is detected."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resource_limits import on_a_full_disk
from wheelfactory.core.strict import read_record
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store, last_used

SOURCES = ("fmha_bwd_d128", "fmha_fwd_d128", "fmha_fwd_d64")
KEY = SetKey({"compiler": "HIP 6.4", "flags": ["-O3"], "environment": {}}, SOURCES)
CONTENT = b"\x7fELF" + bytes(range(256))


def entry_of(source: str = SOURCES[0], content: bytes = CONTENT) -> ObjectRecord:
    sha256 = hashlib.sha256(content).hexdigest()
    return ObjectRecord(source, ("gfx942",), sha256, len(content), 40.5, 900, 1.0, 41.5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "kernels", KEY)
    made.create()
    return made


def keep(store: Store, source: str = SOURCES[0], content: bytes = CONTENT) -> ObjectRecord:
    built = store.folder.parent / "built.o"
    built.write_bytes(content)
    entry = entry_of(source, content)
    store.save_object(built, entry)
    return entry


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_set_has_a_folder_named_by_its_key_with_what_the_key_is_made_of(store: Store) -> None:
    assert store.folder.name == KEY.digest[:16]
    assert everything(store.folder) == {"objects", "set.json"}
    assert SetKey.from_bytes((store.folder / "set.json").read_bytes()) == KEY


def test_a_set_knows_when_it_was_last_used(store: Store) -> None:
    os.utime(store.folder / "set.json", ns=(0, 1000))
    assert last_used(store.folder) == 1000

    keep(store)
    Store.open(store.folder.parent, KEY.digest).read_records()
    assert last_used(store.folder) == 1000, "only what creates the set uses it"

    store.create()
    assert (last_used(store.folder) or 0) > 1000


def changed(**values: Any) -> bytes:
    return json.dumps({**json.loads(KEY.to_bytes()), **values}).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b"[" * 100_000, "nested too deep"),
        (b"[]", "not a JSON object"),
        (changed(format=1), "format 3"),
        (changed(parts=[]), "parts: expected object"),
        (changed(sources="abc"), "sources: expected list"),
    ],
    ids=["empty", "deep", "a list", "another format", "parts", "sources"],
)
def test_an_invalid_set_json_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SetKey.from_bytes(data)


INVALID_NAMES = ["", ".", "..", "../a", "/a", "a/b", "a\0", "-a", ".a", "a b", "ä", "a\n", "\ud800", "a" * 251, 1, None]


def test_names_that_could_leave_the_folder_are_refused() -> None:
    for name in INVALID_NAMES:
        with pytest.raises(ValueError, match=r"not a kernel set|sources\[0\]: expected str"):
            SetKey.from_bytes(changed(sources=[name]))
        with pytest.raises(ValueError, match=r"not a record|expected str"):
            read_record(ObjectRecord, {**vars(entry_of()), "targets": ["gfx942"], "source": name})


def test_a_saved_object_that_all_may_read_and_none_may_change_is_replaced_by_another(store: Store) -> None:
    before = os.umask(0o077)
    keep(store)
    os.umask(before)
    again = keep(store, content=b"other")

    assert Store(store.folder.parent, KEY).read_records() == {again.source: again}, "of two lines the last counts"
    assert everything(store.folder) == {"journal.jsonl", "objects", f"objects/{again.source}.o", "set.json"}
    assert store.object_path(again.source).read_bytes() == b"other"
    assert store.object_path(again.source).stat().st_mode & 0o777 == 0o444


# the journal


@pytest.mark.parametrize("cut", [1, 2, 40, -1], ids=["the line end", "a brace", "much", "all but a byte"])
def test_a_truncated_last_line_is_ignored_and_damages_no_other(store: Store, cut: int) -> None:
    first, lost = keep(store, SOURCES[0]), keep(store, SOURCES[1])
    line = len(lost.to_line())
    whole = store.journal.read_bytes()
    store.journal.write_bytes(whole[: -cut if cut > 0 else 1 - line])

    read = set(store.read_records())

    assert read == ({first.source, lost.source} if cut == 1 else {first.source})
    third = keep(store, SOURCES[2])
    assert set(store.read_records()) == {*read, third.source}


INVALID_CHANGES: list[dict[str, object]] = [
    {"sha256": "x"},
    {"size": -1},
    {"cpu_s": -1},
    {"start": 10**400},
    {"targets": "gfx942"},
    {"more": 1},
]


def test_lines_with_invalid_values_and_other_lines_are_ignored(store: Store) -> None:
    first = keep(store)
    invalid = [json.dumps({**vars(entry_of(SOURCES[1])), **change}).encode() for change in INVALID_CHANGES]
    for line in (*invalid, b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b"9" * 5000):
        with store.journal.open("ab") as file:
            file.write(line + b"\n")
        assert store.read_records() == {first.source: first}, line[:80]
    last = keep(store, SOURCES[2])
    assert store.read_records() == {first.source: first, last.source: last}


APPEND = """
import sys
from pathlib import Path
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store
store = Store(Path(sys.argv[1]), SetKey({}, ()))
for number in range(500):
    store._append_record(ObjectRecord(f"{sys.argv[2]}_{number}", ("gfx942",) * 20, "0" * 64, 1, 1.0, 1, 1.0, 1.0))
"""


def test_two_processes_that_append_at_once_lose_no_line(tmp_path: Path) -> None:
    sources = tuple(f"{process}_{number}" for process in "ab" for number in range(500))
    store = Store(tmp_path, SetKey({}, sources))
    store.create()

    running = [subprocess.Popen([sys.executable, "-c", APPEND, str(tmp_path), process]) for process in "ab"]

    assert [process.wait() for process in running] == [0, 0]
    assert set(store.read_records()) == set(sources)


# damage


@pytest.mark.parametrize("content", [None, CONTENT[:-1], CONTENT[:-1] + b"?"], ids=["a folder", "cut short", "changed"])
def test_damage_to_an_object_is_detected(store: Store, content: bytes | None) -> None:
    entry = keep(store)
    path = store.object_path(entry.source)
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)

    assert not store.has_object(entry)


# a full disk


def save_without_room(store: Store, source: str, content: bytes, room: int) -> None:
    """Save an object while the journal has room for `room` bytes more."""
    limit = store.journal.stat().st_size + room
    assert on_a_full_disk(lambda: keep(store, source, content), limit).startswith("OSError: ")


def test_an_object_without_its_journal_line_does_not_exist_and_an_older_line_does_not_match(store: Store) -> None:
    entry = keep(store)

    for source in SOURCES[:2]:
        save_without_room(store, source, b"other", room=20)
        assert store.read_records() == {entry.source: entry}

    assert not store.has_object(entry)
    again = {source: keep(store, source) for source in SOURCES[:2]}
    assert store.read_records() == again
    assert all(map(store.has_object, again.values()))


def test_an_object_that_cannot_be_moved_is_not_recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = everything(store.folder)
    monkeypatch.setattr(Path, "replace", refuse)

    with pytest.raises(OSError, match="No space left"):
        keep(store)

    assert everything(store.folder) == before
    assert store.read_records() == {}
