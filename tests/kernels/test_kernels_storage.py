"""An archive host returns exactly what was uploaded, or an error with the reason; it never replaces an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_archive_factory import OBJECTS, fill, proof_of
from wheelfactory.core.errors import FactoryError, InputError, PublishError
from wheelfactory.core.files import file_sha256
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.storage import DirectoryArchiveHost, download_set, upload_set

SET = "ck-62327233-rocm6.4-gfx942"
NAME = f"kernels-{SET}-0123456789ab"


@pytest.fixture
def host(tmp_path: Path) -> DirectoryArchiveHost:
    return DirectoryArchiveHost(tmp_path / "release")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return pack_archive(fill(tmp_path / "kernels"), SET, tmp_path / "merged", None, proof=proof_of(SET))


@pytest.fixture
def uploaded(host: DirectoryArchiveHost, archive: Path) -> Path:
    """An archive that the host has."""
    host.upload(NAME, archive)
    return host.folder / "kernels" / NAME / archive.name


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "dest"


def test_the_same_bytes_change_nothing_and_others_are_refused(
    host: DirectoryArchiveHost, uploaded: Path, archive: Path
) -> None:
    before, time = uploaded.read_bytes(), uploaded.stat().st_mtime_ns
    host.upload(NAME, archive)
    archive.write_bytes(b"other")
    with pytest.raises(PublishError, match="the archive host has another archive of this name"):
        host.upload(NAME, archive)
    assert (uploaded.read_bytes(), uploaded.stat().st_mtime_ns) == (before, time)


def test_an_interrupted_upload_and_a_deleted_archive_count_as_missing(
    host: DirectoryArchiveHost, uploaded: Path, archive: Path, dest: Path
) -> None:
    (uploaded.parent / "SHA256SUMS").unlink()
    uploaded.write_bytes(b"half")
    assert not host.has(NAME)
    assert host.download(NAME, dest) is None
    for _ in range(2):
        host.upload(NAME, archive)
        assert uploaded.read_bytes() == archive.read_bytes()
        uploaded.unlink()
        assert not host.has(NAME), "a deleted archive"


def test_a_modified_archive_is_not_downloaded(host: DirectoryArchiveHost, uploaded: Path, dest: Path) -> None:
    uploaded.write_bytes(uploaded.read_bytes() + b"x")
    with pytest.raises(PublishError, match="damaged archive on the archive host"):
        host.download(NAME, dest)
    assert list(dest.iterdir()) == []


@pytest.mark.parametrize("name", ["../x.tar.zst", "/etc/x.tar.zst", "x", ".tar.zst", "a b.tar.zst"])
def test_an_invalid_checksum_file_counts_as_missing(
    host: DirectoryArchiveHost, uploaded: Path, archive: Path, dest: Path, name: str
) -> None:
    (uploaded.parent.parent / "x.tar.zst").write_bytes(archive.read_bytes())
    (uploaded.parent / "SHA256SUMS").write_text(f"{file_sha256(archive)}  {name}\n")
    assert not host.has(NAME)
    assert host.download(NAME, dest) is None


# sets


def test_a_set_is_uploaded_only_once(host: DirectoryArchiveHost, archive: Path, tmp_path: Path) -> None:
    upload_set(host, NAME, archive)
    before = archive.read_bytes()
    archive.write_bytes(b"the same objects, with other times of compiling")
    upload_set(host, NAME, archive)
    assert (host.folder / "kernels" / NAME / archive.name).read_bytes() == before


def test_a_set_is_not_uploaded_before_its_kernels_were_executed(host: DirectoryArchiveHost, tmp_path: Path) -> None:
    unproved = pack_archive(fill(tmp_path / "kernels"), SET, tmp_path / "merged", None)
    with pytest.raises(InputError, match=f"no kernel of the set was executed: {SET}"):
        upload_set(host, NAME, unproved)
    assert not host.has(NAME)


def test_a_downloaded_set_has_the_name_that_builds_look_for(
    host: DirectoryArchiveHost, uploaded: Path, archive: Path, dest: Path
) -> None:
    assert download_set(host, NAME, SET, dest) == dest / archive.name
    assert host.has(NAME)
    assert [path.name for path in dest.iterdir()] == [uploaded.name]
    assert (dest / archive.name).read_bytes() == uploaded.read_bytes() == archive.read_bytes()


def test_a_missing_set_is_an_error_with_the_command_that_makes_it(host: DirectoryArchiveHost, dest: Path) -> None:
    with pytest.raises(FactoryError, match=f"no archive of this kernel set on the archive host: {NAME}") as refused:
        download_set(host, NAME, SET, dest)
    assert refused.value.exit_code == 1
    assert f"wheelfactory kernels {SET}" in refused.value.hint
    assert list(dest.iterdir()) == []


@pytest.mark.parametrize(
    ("set_id", "shard", "count", "renamed"),
    [
        pytest.param("ck-1c6f3a07-rocm6.4-gfx942", None, 4, "", id="another set"),
        pytest.param("ck-1c6f3a07-rocm6.4-gfx942", None, 4, SET, id="another set under this name"),
        pytest.param(SET, "1/2", 4, "", id="a shard"),
        pytest.param(SET, None, 3, "", id="a part"),
    ],
)
def test_anything_but_the_complete_set_is_refused(
    host: DirectoryArchiveHost, dest: Path, tmp_path: Path, set_id: str, shard: str | None, count: int, renamed: str
) -> None:
    store = fill(tmp_path / "kernels", dict(list(OBJECTS.items())[:count]))
    path = pack_archive(store, set_id, tmp_path / "merged", shard, list(OBJECTS), partial=True)
    if renamed:
        path = path.rename(path.with_name(path.name.replace(set_id, renamed)))
    host.upload(NAME, path)
    with pytest.raises(InputError, match="unexpected archive on the archive host"):
        download_set(host, NAME, SET, dest)
    assert list(dest.iterdir()) == []
