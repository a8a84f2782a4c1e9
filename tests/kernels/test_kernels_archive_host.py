"""A shelf gives back exactly what was put on it, or says why not; what is on it is never replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_archive_factory import OBJECTS, fill
from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import FactoryError, InputError, PublishError
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.archive_host import DirectoryArchiveHost, download_set, upload_set

SET = "fa2.8.3-rocm6.4-gfx90a_gfx942-cxx11"
NAME = f"kernels-{SET}-0123456789ab"


@pytest.fixture
def shelf(tmp_path: Path) -> DirectoryArchiveHost:
    return DirectoryArchiveHost(tmp_path / "release")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return pack_archive(fill(tmp_path / "kernels"), SET, tmp_path / "joined", None)


@pytest.fixture
def kept(shelf: DirectoryArchiveHost, archive: Path) -> Path:
    """An archive on the shelf."""
    shelf.upload(NAME, archive)
    return shelf.folder / "kernels" / NAME / archive.name


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "dest"


def test_an_uploaded_archive_can_be_downloaded(
    shelf: DirectoryArchiveHost, kept: Path, archive: Path, dest: Path
) -> None:
    assert shelf.has(NAME)
    taken = shelf.download(NAME, dest)
    assert taken == dest / archive.name
    assert taken.read_bytes() == kept.read_bytes() == archive.read_bytes()


def test_the_sha256_is_stored_with_the_archive(kept: Path, archive: Path) -> None:
    assert (kept.parent / "SHA256SUMS").read_text() == f"{file_sha256(archive)}  {archive.name}\n"


def test_a_missing_archive_downloads_as_none(shelf: DirectoryArchiveHost, dest: Path) -> None:
    assert not shelf.has(NAME)
    assert shelf.download(NAME, dest) is None
    assert not shelf.folder.exists()
    assert not dest.exists()


def test_uploading_the_same_bytes_again_changes_nothing(shelf: DirectoryArchiveHost, kept: Path, archive: Path) -> None:
    before = kept.stat().st_mtime_ns
    shelf.upload(NAME, archive)
    assert kept.stat().st_mtime_ns == before


def test_other_bytes_are_refused_and_the_stored_archive_stays(
    shelf: DirectoryArchiveHost, kept: Path, archive: Path
) -> None:
    before = kept.read_bytes()
    archive.write_bytes(b"other")
    with pytest.raises(PublishError, match="the archive host has another archive of this name"):
        shelf.upload(NAME, archive)
    assert kept.read_bytes() == before


def test_an_interrupted_upload_counts_as_missing(
    shelf: DirectoryArchiveHost, kept: Path, archive: Path, dest: Path
) -> None:
    (kept.parent / "SHA256SUMS").unlink()
    kept.write_bytes(b"half")
    assert not shelf.has(NAME)
    assert shelf.download(NAME, dest) is None
    shelf.upload(NAME, archive)
    assert kept.read_bytes() == archive.read_bytes()


def test_a_deleted_archive_can_be_uploaded_again(shelf: DirectoryArchiveHost, kept: Path, archive: Path) -> None:
    kept.unlink()
    assert not shelf.has(NAME)
    shelf.upload(NAME, archive)
    assert shelf.has(NAME)


def test_a_modified_archive_is_not_downloaded(shelf: DirectoryArchiveHost, kept: Path, dest: Path) -> None:
    kept.write_bytes(kept.read_bytes() + b"x")
    with pytest.raises(PublishError, match="damaged archive on the archive host"):
        shelf.download(NAME, dest)
    assert list(dest.iterdir()) == []


@pytest.mark.parametrize("name", ["../x.tar.zst", "/etc/x.tar.zst", "x", ".tar.zst", "a b.tar.zst"])
def test_an_invalid_checksum_file_counts_as_missing(
    shelf: DirectoryArchiveHost, kept: Path, archive: Path, dest: Path, name: str
) -> None:
    (kept.parent.parent / "x.tar.zst").write_bytes(archive.read_bytes())
    (kept.parent / "SHA256SUMS").write_text(f"{file_sha256(archive)}  {name}\n")
    assert not shelf.has(NAME)
    assert shelf.download(NAME, dest) is None


# sets


def test_a_set_is_uploaded_only_once(shelf: DirectoryArchiveHost, archive: Path, tmp_path: Path) -> None:
    upload_set(shelf, NAME, archive)
    before = archive.read_bytes()
    archive.write_bytes(b"the same objects, with other times of compiling")
    upload_set(shelf, NAME, archive)
    assert (shelf.folder / "kernels" / NAME / archive.name).read_bytes() == before


def test_a_downloaded_set_has_the_name_that_builds_look_for(
    shelf: DirectoryArchiveHost, kept: Path, archive: Path, dest: Path
) -> None:
    assert download_set(shelf, NAME, SET, dest) == dest / archive.name
    assert [path.name for path in dest.iterdir()] == [kept.name]
    assert (dest / archive.name).read_bytes() == archive.read_bytes()


def test_a_missing_set_is_an_error_with_the_command_that_makes_it(shelf: DirectoryArchiveHost, dest: Path) -> None:
    with pytest.raises(FactoryError, match=f"no archive of this kernel set on the archive host: {NAME}") as refused:
        download_set(shelf, NAME, SET, dest)
    assert refused.value.exit_code == 1
    assert f"wheelfactory kernels {SET}" in refused.value.hint
    assert list(dest.iterdir()) == []


@pytest.mark.parametrize(
    ("set_id", "shard", "count", "renamed"),
    [
        pytest.param("fa2.7.4-rocm6.4-gfx942-cxx11", None, 4, "", id="another set"),
        pytest.param("fa2.7.4-rocm6.4-gfx942-cxx11", None, 4, SET, id="another set under this name"),
        pytest.param(SET, "1/2", 4, "", id="a shard"),
        pytest.param(SET, None, 3, "", id="a part"),
    ],
)
def test_anything_but_the_complete_set_is_refused(
    shelf: DirectoryArchiveHost, dest: Path, tmp_path: Path, set_id: str, shard: str | None, count: int, renamed: str
) -> None:
    store = fill(tmp_path / "kernels", dict(list(OBJECTS.items())[:count]))
    path = pack_archive(store, set_id, tmp_path / "joined", shard, list(OBJECTS), partial=True)
    if renamed:
        path = path.rename(path.with_name(path.name.replace(set_id, renamed)))
    shelf.upload(NAME, path)
    with pytest.raises(InputError, match="unexpected archive on the archive host"):
        download_set(shelf, NAME, SET, dest)
    assert list(dest.iterdir()) == []


def test_a_file_that_is_not_an_archive_is_refused(shelf: DirectoryArchiveHost, dest: Path, tmp_path: Path) -> None:
    path = tmp_path / f"{SET}-0123456789abcdef.tar.zst"
    path.write_bytes(b"no archive")
    shelf.upload(NAME, path)
    with pytest.raises(InputError, match="damaged kernel archive"):
        download_set(shelf, NAME, SET, dest)
    assert list(dest.iterdir()) == []
