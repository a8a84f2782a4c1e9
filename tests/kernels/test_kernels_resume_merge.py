"""Merging a folder: one archive of all shards, or how far which of them is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_archive_factory import KEY, OBJECTS, PARTS, fill, members_of, repacked
from wheelfactory.core.errors import BuildError, InputError, RunAgainError
from wheelfactory.kernels.archive import pack_archive as pack_store
from wheelfactory.kernels.archive import read_archive_manifest
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.resume import merge_set

SET = "ck-62327233-rocm6.4-gfx942"
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


def test_the_progress_of_each_shard_is_reported(folder: Path) -> None:
    pack(folder, "2/2", objects=1)
    assert far(folder) == "shard 1/2: no kernel; shard 2/2: 1 of 2 kernels"


def test_a_good_copy_in_another_archive_replaces_a_damaged_object(folder: Path) -> None:
    damaged, good = pack(folder, "2/2"), pack(folder, None, objects=4)
    members = members_of(damaged.read_bytes())
    damaged.write_bytes(repacked([(name, content.replace(b"forward", b"forwarD")) for name, content in members]))
    assert merge_set(folder, SET, folder.parent / "kernels") == good


def test_a_missing_shard_that_nobody_has_begun_is_an_error(folder: Path) -> None:
    pack(folder, "2/2")
    with pytest.raises(BuildError, match=r"incomplete kernel set: 2 of 4 .* no archive of shard 1/2"):
        merge_set(folder, SET, folder.parent / "kernels")
    assert len(list(folder.iterdir())) == 1


def test_a_part_of_another_compiler_is_begun_too(folder: Path) -> None:
    """The next run of that shard compiles it with the compiler of today."""
    pack(folder, "2/2")
    pack(folder, "1/2", objects=1, key=OTHER)
    assert far(folder) == "shard 1/2: 1 of 2 kernels"


@pytest.mark.parametrize("shards", [(None, None), tuple(SHARDS)], ids=["whole sets", "shards"])
def test_archives_of_two_compilers_are_refused_with_their_differences(
    folder: Path, shards: tuple[str | None, str | None]
) -> None:
    one = pack(folder, shards[0], objects=4 if shards[0] is None else 2)
    two = pack(folder, shards[1], objects=4 if shards[1] is None else 2, key=OTHER)
    with pytest.raises(InputError, match="archives of different compilers") as refused:
        merge_set(folder, SET, folder.parent / "kernels")
    assert one.name in refused.value.which
    assert two.name in refused.value.which
    assert "flags: " in refused.value.which


def test_a_merge_without_archives_is_an_error_with_the_compile_command(folder: Path) -> None:
    with pytest.raises(InputError, match="no archives to merge") as refused:
        merge_set(folder, SET, folder.parent / "kernels")
    assert "--shard 1/N" in refused.value.hint
