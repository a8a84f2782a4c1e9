"""Joining a folder: one archive of all shards, or how far which of them is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_archive_factory import KEY, OBJECTS, PARTS, fill
from wheelfactory.core.errors import BuildError, InputError, RunAgainError
from wheelfactory.kernels.archive import pack_archive as pack_store
from wheelfactory.kernels.archive import read_archive_manifest
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.resume import merge_set

SET = "fa2.8.3-rocm6.4-gfx90a_gfx942-cxx11"
SHARDS = {"1/2": ["fmha_bwd_d128", "fmha_fwd_d64"], "2/2": ["fmha_fwd_d128", "x_api"]}
OTHER = SetKey({**PARTS, "flags": ["-O2"]}, KEY.sources)


def pack(folder: Path, shard: str | None, objects: int = 2, key: SetKey = KEY) -> Path:
    """The archive of a shard, with so many of its objects, by a machine that has compiled nothing else."""
    names = SHARDS[shard] if shard else list(OBJECTS)
    machine = folder.parent / f"machine{len(list(folder.parent.iterdir()))}"
    store = fill(machine, {name: OBJECTS[name] for name in names[:objects]}, key)
    return pack_store(store, SET, folder, shard, names, partial=objects < len(names))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "archives").mkdir()
    return tmp_path / "archives"


def far(folder: Path) -> str:
    """The text about the progress of the shards."""
    with pytest.raises(RunAgainError) as later:
        merge_set(folder, SET, folder.parent / "kernels")
    assert later.value.what == "incomplete kernel set"
    assert later.value.exit_code == 6
    assert later.value.hint
    return later.value.which


def test_all_shards_make_the_set(folder: Path) -> None:
    for shard in SHARDS:
        pack(folder, shard)
    merged = merge_set(folder, SET, folder.parent / "kernels")
    assert sorted(read_archive_manifest(merged).objects) == sorted(OBJECTS)


def test_a_partial_archive_of_a_complete_shard_is_ignored(folder: Path) -> None:
    for shard in SHARDS:
        pack(folder, shard)
    pack(folder, "1/2", objects=1)
    assert not read_archive_manifest(merge_set(folder, SET, folder.parent / "kernels")).is_partial


def test_a_partial_shard_is_reported_with_its_progress(folder: Path) -> None:
    pack(folder, "2/2")
    pack(folder, "1/2", objects=1)
    assert far(folder) == "shard 1/2: 1 of 2 kernels"


def test_each_partial_shard_is_reported(folder: Path) -> None:
    pack(folder, "1/2", objects=1)
    pack(folder, "2/2", objects=1)
    assert far(folder) == "shard 1/2: 1 of 2 kernels; shard 2/2: 1 of 2 kernels"


def test_a_shard_without_kernels_is_reported(folder: Path) -> None:
    pack(folder, "2/2", objects=1)
    assert far(folder) == "shard 1/2: no kernel; shard 2/2: 1 of 2 kernels"


def test_a_partial_whole_set_is_reported(folder: Path) -> None:
    pack(folder, None, objects=3)
    assert far(folder) == "shard 1/1: 3 of 4 kernels"


def test_a_missing_shard_without_partial_archive_is_an_error(folder: Path) -> None:
    pack(folder, "2/2")
    with pytest.raises(BuildError, match=r"incomplete kernel set: 2 of 4 .* no archive of shard 1/2"):
        merge_set(folder, SET, folder.parent / "kernels")


def test_a_leftover_partial_archive_does_not_hide_a_missing_shard(folder: Path) -> None:
    pack(folder, "2/2")
    pack(folder, "2/2", objects=1)
    with pytest.raises(BuildError, match="no archive of shard 1/2"):
        merge_set(folder, SET, folder.parent / "kernels")


def test_a_partial_archive_of_another_key_does_not_count_as_progress(folder: Path) -> None:
    pack(folder, "2/2")
    pack(folder, "1/2", objects=1, key=OTHER)
    with pytest.raises(BuildError, match="no archive of shard 1/2"):
        merge_set(folder, SET, folder.parent / "kernels")


def test_a_damaged_partial_archive_is_logged_and_ignored(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    pack(folder, "1/2", objects=1)
    broken = pack(folder, "2/2", objects=1)
    broken.write_bytes(b"")
    assert far(folder) == "shard 1/2: 1 of 2 kernels; shard 2/2: no kernel"
    assert str(broken) in caplog.text


def test_a_whole_set_needs_no_merge(folder: Path) -> None:
    archive = pack(folder, None, objects=4)
    assert merge_set(folder, SET, folder.parent / "kernels") == archive


def test_a_damaged_whole_set_is_refused(folder: Path) -> None:
    archive = pack(folder, None, objects=4)
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged kernel archive"):
        merge_set(folder, SET, folder.parent / "kernels")


def test_whole_sets_of_two_compilers_are_an_error(folder: Path) -> None:
    pack(folder, None, objects=4)
    pack(folder, None, objects=4, key=OTHER)
    with pytest.raises(InputError, match="no shards to merge"):
        merge_set(folder, SET, folder.parent / "kernels")


def test_a_merge_without_shards_is_an_error_with_the_compile_command(folder: Path) -> None:
    with pytest.raises(InputError, match="no shards to merge") as refused:
        merge_set(folder, SET, folder.parent / "kernels")
    assert "--shard 1/N" in refused.value.hint
