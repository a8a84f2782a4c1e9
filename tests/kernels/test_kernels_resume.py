"""What earlier runs left in the folder of archives is taken over, as far as it is sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_archive_factory import KEY, OBJECTS, PARTS, fill
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.resume import log_ignored_archives, unpack_archives

SET = "ck-62327233-rocm6.4-gfx942"
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


def test_a_part_of_a_shard_is_unpacked_and_known_as_a_part(part: Path, folder: Path, kernels: Path) -> None:
    (unpacked,) = unpack_archives(folder, SET, kernels)
    assert (unpacked.file_name, unpacked.shard, unpacked.is_partial) == (part.name, "1/2", True)
    assert objects(kernels) == {name: OBJECTS[name] for name in NAMES[:2]}


def test_archives_of_all_shards_and_of_the_set_are_unpacked(whole: Path, folder: Path, kernels: Path) -> None:
    pack_archive(machine(whole.parents[1], "other", "x_api"), SET, folder, "3/7", ["x_api"])
    pack_archive(machine(whole.parents[1], "all", *OBJECTS), SET, folder, None)
    unpacked = unpack_archives(folder, SET, kernels)
    assert [(item.shard, item.is_partial) for item in unpacked] == [("1/2", False), ("3/7", False), (None, False)]
    assert objects(kernels) == OBJECTS


def test_a_truncated_archive_is_logged_and_its_good_objects_are_used(
    whole: Path, folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole.write_bytes(whole.read_bytes()[:-4])
    assert unpack_archives(folder, SET, kernels) == ()
    assert f"damaged kernel archive: {whole}" in caplog.text
    assert objects(kernels) == {name: OBJECTS[name] for name in NAMES}
    assert whole.exists()


@pytest.mark.parametrize(
    ("wrong", "right"), [("-1-of-2", "-2-of-2"), (".shard-1-of-2", "")], ids=["another shard", "the whole set"]
)
def test_a_misnamed_archive_is_not_what_its_name_says(
    whole: Path, folder: Path, kernels: Path, caplog: pytest.LogCaptureFixture, wrong: str, right: str
) -> None:
    name = whole.name.replace(wrong, right)
    whole.rename(folder / name)
    assert unpack_archives(folder, SET, kernels) == ()
    assert f"misnamed kernel archive: {folder / name} should be {whole.name}" in caplog.text


def test_an_ignored_archive_is_logged_with_its_differences(
    folder: Path, kernels: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack_archive(machine(tmp_path, "other", "x_api", key=OTHER), SET, folder, "1/2", NAMES, partial=True)
    unpacked = unpack_archives(folder, SET, kernels)
    assert objects(kernels) == {}
    log_ignored_archives(unpacked, OTHER)
    assert "its key differs" not in caplog.text
    log_ignored_archives(unpacked, KEY)
    assert "its key differs: flags: " in caplog.text
