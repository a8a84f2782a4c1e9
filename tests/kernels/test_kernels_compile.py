"""What earlier runs left in the folder of archives is taken over, as far as it is sound, and merged to one set."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_archive_factory import KEY, OBJECTS, PARTS, fill, members_of, repacked
from wheelfactory.core.errors import BuildError, InputError, RunAgainError
from wheelfactory.kernels.archive import pack_archive, read_archive_manifest
from wheelfactory.kernels.compile import log_ignored_archives, merge_set, unpack_archives
from wheelfactory.kernels.compiler.store import SetKey, Store

SET = "ck-62327233-rocm6.4-gfx942"
SHARDS = {"1/2": ["fmha_bwd_d128", "fmha_fwd_d64"], "2/2": ["fmha_fwd_d128", "x_api"]}
OTHER = SetKey({**PARTS, "flags": ["-O2"]}, KEY.sources)
"""The key of another compile of the same sources."""


def pack(folder: Path, shard: str | None, objects: int = 4, key: SetKey = KEY) -> Path:
    """The archive of a shard, with at most so many objects, by a machine that has compiled nothing else."""
    names = SHARDS[shard] if shard else list(OBJECTS)
    machine = folder.parent / f"machine{len(list(folder.parent.iterdir()))}"
    store = fill(machine, {name: OBJECTS[name] for name in names[:objects]}, key)
    return pack_archive(store, SET, folder, shard, names, partial=objects < len(names))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of archives."""
    (tmp_path / "archives").mkdir()
    return tmp_path / "archives"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """The stores of the machine that goes on, which has compiled nothing."""
    return tmp_path / "kernels"


def objects(kernels: Path) -> dict[str, bytes]:
    """What a store has."""
    store = Store(kernels, KEY)
    return {source: store.object_path(source).read_bytes() for source in store.read_records()}


def test_archives_of_all_shards_and_of_the_set_are_unpacked(folder: Path, kernels: Path) -> None:
    part = pack(folder, "1/2", objects=1)
    (unpacked,) = unpack_archives(folder, SET, kernels)
    assert (unpacked.file_name, unpacked.shard, unpacked.is_partial) == (part.name, "1/2", True)
    assert objects(kernels) == {name: OBJECTS[name] for name in SHARDS["1/2"][:1]}

    pack(folder, "2/2")
    pack(folder, None)
    found = [(item.shard, item.is_partial) for item in unpack_archives(folder, SET, kernels)]
    assert found == [("1/2", True), ("2/2", False), (None, False)]
    assert objects(kernels) == OBJECTS


def test_a_truncated_archive_is_logged_and_its_good_objects_are_used(
    folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = pack(folder, "1/2")
    whole.write_bytes(whole.read_bytes()[:-4])
    assert unpack_archives(folder, SET, kernels) == ()
    assert f"damaged kernel archive: {whole}" in caplog.text
    assert objects(kernels) == {name: OBJECTS[name] for name in SHARDS["1/2"]}
    assert whole.exists()


@pytest.mark.parametrize(
    ("wrong", "right"), [("-1-of-2", "-2-of-2"), (".shard-1-of-2", "")], ids=["another shard", "the whole set"]
)
def test_a_misnamed_archive_is_not_what_its_name_says(
    folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture, wrong: str, right: str
) -> None:
    whole = pack(folder, "1/2")
    name = whole.name.replace(wrong, right)
    whole.rename(folder / name)
    assert unpack_archives(folder, SET, kernels) == ()
    assert f"misnamed kernel archive: {folder / name} should be {whole.name}" in caplog.text


def test_an_ignored_archive_is_logged_with_its_differences(
    folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack(folder, "1/2", objects=1, key=OTHER)
    unpacked = unpack_archives(folder, SET, kernels)
    assert objects(kernels) == {}
    log_ignored_archives(unpacked, OTHER)
    assert "its key differs" not in caplog.text
    log_ignored_archives(unpacked, KEY)
    assert "its key differs: flags: " in caplog.text


# merging


def far(folder: Path, kernels: Path) -> str:
    """The text about the progress of the shards."""
    with pytest.raises(RunAgainError) as later:
        merge_set(folder, SET, kernels)
    assert later.value.what == "incomplete kernel set"
    assert later.value.exit_code == 6
    assert later.value.hint
    return later.value.which


def test_all_shards_make_the_set_whatever_another_compiler_left(folder: Path, kernels: Path) -> None:
    pack(folder, "1/2", objects=1, key=OTHER)
    for shard in SHARDS:
        pack(folder, shard)
    merged = read_archive_manifest(merge_set(folder, SET, kernels))
    assert (merged.key, sorted(merged.objects)) == (KEY.digest, sorted(OBJECTS))


def test_the_progress_of_each_shard_is_reported(folder: Path, kernels: Path) -> None:
    pack(folder, "2/2", objects=1)
    assert far(folder, kernels) == "shard 1/2: no kernel; shard 2/2: 1 of 2 kernels"


def test_a_part_of_another_compiler_is_begun_too(folder: Path, kernels: Path) -> None:
    """The next run of that shard compiles it with the compiler of today."""
    pack(folder, "2/2")
    pack(folder, "1/2", objects=1, key=OTHER)
    assert far(folder, kernels) == "shard 1/2: 1 of 2 kernels"


def test_a_good_copy_in_another_archive_replaces_a_damaged_object(folder: Path, kernels: Path) -> None:
    damaged, good = pack(folder, "2/2"), pack(folder, None)
    members = members_of(damaged.read_bytes())
    damaged.write_bytes(repacked([(name, content.replace(b"forward", b"forwarD")) for name, content in members]))
    assert merge_set(folder, SET, kernels) == good


def test_a_missing_shard_that_nobody_has_begun_is_an_error(folder: Path, kernels: Path) -> None:
    with pytest.raises(InputError, match="no archives to merge") as refused:
        merge_set(folder, SET, kernels)
    assert "--shard 1/N" in refused.value.hint

    pack(folder, "2/2")
    with pytest.raises(BuildError, match=r"incomplete kernel set: 2 of 4 .* no archive of shard 1/2"):
        merge_set(folder, SET, kernels)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("shards", [(None, None), tuple(SHARDS)], ids=["whole sets", "shards"])
def test_archives_of_two_compilers_are_refused_with_their_differences(
    folder: Path, kernels: Path, shards: tuple[str | None, str | None]
) -> None:
    one, two = pack(folder, shards[0]), pack(folder, shards[1], key=OTHER)
    with pytest.raises(InputError, match="archives of different compilers") as refused:
        merge_set(folder, SET, kernels)
    assert one.name in refused.value.which
    assert two.name in refused.value.which
    assert "flags: " in refused.value.which
