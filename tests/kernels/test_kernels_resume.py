"""What earlier runs left in the folder of archives: a whole shard ends the work, a part of it shortens it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kernel_archive_factory import KEY, OBJECTS, PARTS, fill, members_of, repacked
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.resume import (
    find_complete_archive,
    log_ignored_archives,
    remove_partial_archive,
    unpack_partial_archives,
)

SET = "fa2.8.3-rocm6.4-gfx90a_gfx942-cxx11"
OTHER = SetKey({**PARTS, "flags": ["-O2"]}, KEY.sources)
"""The key of another compile of the same sources."""
NAMES = ["fmha_bwd_d128", "fmha_fwd_d128", "x_api"]
"""What a shard has."""


def machine(folder: Path, name: str, *sources: str, key: SetKey = KEY) -> Store:
    """A machine that has compiled these."""
    return fill(folder / name, {source: OBJECTS[source] for source in sources}, key)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of archives."""
    return tmp_path / "archives"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """The stores of the machine that goes on, which has compiled nothing."""
    return tmp_path / "kernels"


@pytest.fixture
def whole(folder: Path, tmp_path: Path) -> Path:
    """A whole shard."""
    return pack_archive(machine(tmp_path, "one", *NAMES), SET, folder, "1/2", NAMES)


@pytest.fixture
def part(folder: Path, tmp_path: Path) -> Path:
    """Two thirds of it."""
    return pack_archive(machine(tmp_path, "two", *NAMES[:2]), SET, folder, "1/2", NAMES, partial=True)


def objects(kernels: Path, key: SetKey = KEY) -> dict[str, bytes]:
    """What a store has."""
    store = Store(kernels, key)
    return {source: store.object_path(source).read_bytes() for source in store.read_records()}


def damaged(path: Path) -> None:
    """Change an object in an archive."""
    members = members_of(path.read_bytes())
    path.write_bytes(repacked([(name, content.replace(b"forward", b"forwarD")) for name, content in members]))


# the whole


def test_a_whole_shard_is_found_and_nothing_is_unpacked(whole: Path, folder: Path, kernels: Path) -> None:
    assert find_complete_archive(folder, SET, "1/2", kernels) == whole
    assert not kernels.exists()


@pytest.mark.parametrize("shard", [None, "2/2", "1/3", "11/2"])
def test_another_shard_does_not_match(whole: Path, folder: Path, kernels: Path, shard: str | None) -> None:
    assert find_complete_archive(folder, SET, shard, kernels) is None
    assert whole.exists()


def test_a_whole_set_is_found(folder: Path, kernels: Path, tmp_path: Path) -> None:
    archive = pack_archive(machine(tmp_path, "one", *OBJECTS), SET, folder, None)
    assert find_complete_archive(folder, SET, None, kernels) == archive
    assert find_complete_archive(folder, SET, "1/2", kernels) is None


def test_a_partial_archive_does_not_count_as_complete(part: Path, folder: Path, kernels: Path) -> None:
    assert find_complete_archive(folder, SET, "1/2", kernels) is None
    assert part.exists()


def test_archives_of_two_compilers_are_left_for_setup_py_to_decide(
    whole: Path, folder: Path, kernels: Path, tmp_path: Path
) -> None:
    other = pack_archive(machine(tmp_path, "other", *NAMES, key=OTHER), SET, folder, "1/2", NAMES)
    assert find_complete_archive(folder, SET, "1/2", kernels) is None
    assert whole.exists()
    assert other.exists()


def test_good_objects_of_a_damaged_archive_are_unpacked_before_it_is_removed(
    whole: Path, folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged(whole)
    assert find_complete_archive(folder, SET, "1/2", kernels) is None
    assert not whole.exists()
    assert objects(kernels) == {name: OBJECTS[name] for name in NAMES if "fwd" not in name}
    assert f"damaged kernel archive: {whole}" in caplog.text


def test_a_partial_archive_renamed_to_a_complete_one_is_detected(
    part: Path, folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = part.name.replace(".partial", "")
    part.rename(folder / name)
    assert find_complete_archive(folder, SET, "1/2", kernels) is None
    assert not list(folder.iterdir())
    assert sorted(objects(kernels)) == sorted(NAMES[:2])
    assert "misnamed kernel archive" in caplog.text


def test_a_misnamed_archive_of_another_set_is_detected(folder: Path, kernels: Path, tmp_path: Path) -> None:
    other = pack_archive(machine(tmp_path, "one", *NAMES), "fa2.7.4-rocm6.4-gfx942-cxx11", folder, "1/2", NAMES)
    other.rename(folder / other.name.replace("fa2.7.4-rocm6.4-gfx942-cxx11", SET))
    assert find_complete_archive(folder, SET, "1/2", kernels) is None


# the part


def test_a_partial_archive_is_unpacked_into_an_empty_store(part: Path, folder: Path, kernels: Path) -> None:
    (unpacked,) = unpack_partial_archives(folder, SET, "1/2", kernels)
    assert objects(kernels) == {name: OBJECTS[name] for name in NAMES[:2]}
    assert (unpacked.key, unpacked.is_partial) == (KEY.digest, True)
    assert part.exists()


def test_the_partial_archive_of_another_shard_is_not_unpacked(part: Path, folder: Path, kernels: Path) -> None:
    assert unpack_partial_archives(folder, SET, "2/2", kernels) == ()
    assert not kernels.exists()
    assert part.exists()


def test_a_truncated_partial_archive_is_logged_and_removed(
    part: Path, folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    part.write_bytes(part.read_bytes()[:-20])
    assert unpack_partial_archives(folder, SET, "1/2", kernels) == ()
    assert not part.exists()
    assert f"damaged kernel archive: {part}" in caplog.text
    assert objects(kernels).items() <= OBJECTS.items()


def test_a_partial_archive_with_a_damaged_object_gives_its_other_objects(
    part: Path, folder: Path, kernels: Path
) -> None:
    damaged(part)
    unpack_partial_archives(folder, SET, "1/2", kernels)
    assert objects(kernels) == {"fmha_bwd_d128": OBJECTS["fmha_bwd_d128"]}


def test_an_ignored_archive_is_logged_with_its_differences(
    folder: Path, kernels: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack_archive(machine(tmp_path, "other", "x_api", key=OTHER), SET, folder, "1/2", NAMES, partial=True)
    unpacked = unpack_partial_archives(folder, SET, "1/2", kernels)
    assert objects(kernels) == {}
    log_ignored_archives(unpacked, KEY)
    assert "its key differs: flags: " in caplog.text


def test_an_archive_of_the_same_key_is_not_logged(
    part: Path, folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    log_ignored_archives(unpack_partial_archives(folder, SET, "1/2", kernels), KEY)
    assert caplog.text == ""
    assert part.exists()


def test_only_the_superseded_partial_archive_is_removed(whole: Path, part: Path, folder: Path, tmp_path: Path) -> None:
    others = [
        pack_archive(machine(tmp_path, "other", "x_api", key=OTHER), SET, folder, "1/2", NAMES, partial=True),
        pack_archive(machine(tmp_path, "three", "x_api"), SET, folder, "2/2", NAMES, partial=True),
    ]
    remove_partial_archive(whole)
    assert not part.exists()
    assert sorted(folder.iterdir()) == sorted([whole, *others])
    remove_partial_archive(whole)
