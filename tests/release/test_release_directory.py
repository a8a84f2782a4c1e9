"""A release in a directory: nothing is overwritten or half done, and an interrupted publish resumes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from release_factory import additions, content_of, flash_attn_wheel, make_release, path_of, reachable, stub_wheel
from validations import amd_validation
from wheelfactory.core.errors import PublishError
from wheelfactory.core.files import file_sha256, remove_scratch
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release import directory
from wheelfactory.release.directory import DirectoryPublisher, write_pages
from wheelfactory.release.manifest import read_manifest
from wheelfactory.release.transaction import Asset, add_evidence, stage, yank
from wheelfactory.site.index import render_index

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
OTHER_CELL = "fa2.8.3-rocm7.14-torch2.14.1-py3-triton"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return flash_attn_wheel(tmp_path / "made", CELL)


@pytest.fixture
def three_wheels(tmp_path: Path, wheel: Path) -> Sequence[Path]:
    made = tmp_path / "made"
    return [wheel, stub_wheel(made, "einops", "0.8.2"), flash_attn_wheel(made, OTHER_CELL)]


@pytest.fixture
def folder(tmp_path: Path, three_wheels: Sequence[Path]) -> Path:
    """A release with one flash-attn wheel and a dependency."""
    make_release(tmp_path / "release", three_wheels[:2])
    return tmp_path / "release"


def with_times(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Everything below a folder, folders too, with its bytes and the time of its last change."""
    paths = sorted(folder.rglob("*"))
    return {path: (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns) for path in paths}


def test_a_release_is_wheels_metadata_sums_manifest_and_index(folder: Path) -> None:
    names = ["flash_attn-2.8.3+rocm64torch2.9triton-1-py3-none-any.whl", "einops-0.8.2-py3-none-any.whl"]
    files = {f"wheels/{name}{suffix}" for name in names for suffix in ("", ".metadata")}
    above = ("", "rocm64/", "rocm64/torch2.9/")
    index = ("", "flash-attn/", "einops/")
    pages = {*above, *(f"rocm64/torch2.9/triton/{name}" for name in index)}
    pages = {f"simple/{page}index.html" for page in pages}
    assert set(content_of(folder)) == {*files, *pages, "SHA256SUMS", "manifest.jsonl"}
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"{name}: OK" for name in files)


def test_the_same_again_changes_no_byte_and_no_time(folder: Path, wheel: Path) -> None:
    before = with_times(folder)
    make_release(folder, [wheel])
    assert with_times(folder) == before


@pytest.mark.parametrize("suffix", ["", ".metadata"], ids=["wheel", "metadata"])
def test_a_published_file_is_put_back_if_lost_and_refused_if_changed_and_half_a_file_that_no_row_names_replaced(
    folder: Path, wheel: Path, tmp_path: Path, suffix: str
) -> None:
    before = content_of(folder)
    path = folder / "wheels" / f"{wheel.name}{suffix}"
    path.unlink()
    make_release(folder, [wheel])
    assert content_of(folder) == before
    new = flash_attn_wheel(tmp_path, OTHER_CELL)
    (folder / "wheels" / f"{new.name}{suffix}").write_bytes(b"half")
    make_release(folder, [new])
    assert_holds_together(folder)
    assert len(read_manifest(folder)) == 3
    path.write_bytes(b"damaged")
    before = content_of(folder)
    with pytest.raises(PublishError, match="a published file was changed") as refused:
        make_release(folder, [wheel])
    assert refused.value.which == str(path)
    assert "restore it" in refused.value.hint
    assert content_of(folder) == before


def test_a_damaged_copy_is_not_kept(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    with pytest.raises(PublishError, match="damaged while copying") as refused:
        publisher.put_asset(Asset("a.whl", sha256="0" * 64, content=b"something else"))
    assert "check the disk" in refused.value.hint
    assert content_of(tmp_path) == {}


def test_a_staged_file_is_checked_by_its_digest_and_a_published_one_by_its_size(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = DirectoryPublisher(folder)
    staged = additions([flash_attn_wheel(tmp_path, OTHER_CELL)])
    row = staged[0][0]
    assert not publisher.has_wheel(row)
    stage(publisher, staged)
    assert publisher.has_wheel(row)
    (folder / "wheels" / row.filename).write_bytes(bytes(row.size))
    assert not publisher.has_wheel(row)
    monkeypatch.setattr(directory, "file_sha256", None)  # to hash a whole release takes long
    (row, *_) = publisher.rows()
    assert publisher.has_wheel(row)
    (folder / "wheels" / row.filename).write_bytes(b"short")
    with pytest.raises(PublishError, match="a published file was changed"):
        publisher.has_wheel(row)


def test_yank_keeps_the_file_and_its_sums_and_a_reason_that_would_not_read_back_all(folder: Path, wheel: Path) -> None:
    times, before = with_times(folder), content_of(folder)
    for reason in ("wrong \x1b[2Jkernels", "wrong \u202ekernels", "x" * 20_000):
        with pytest.raises(PublishError, match=r"cannot write the manifest: .*: yanked: ") as refused:
            yank(DirectoryPublisher(folder), wheel.name, reason)
        assert "nothing was changed" in refused.value.hint
        assert with_times(folder) == times
    rows = yank(DirectoryPublisher(folder), wheel.name, "wrong kernels")
    write_pages(folder, render_index(rows))
    after = content_of(folder)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {MANIFEST_NAME, "simple/rocm64/torch2.9/triton/flash-attn/index.html"}
    assert before.keys() == after.keys()


class Interrupted(BaseException):
    """Simulates Ctrl-C or a kill."""


@contextmanager
def interrupted_at(write: int, *, killed: bool) -> Iterator[None]:
    """Allow `write` writes and interrupt the next one half-way; if `killed`, without cleaning up."""
    writes = count()

    def interruptible(original: Callable[..., Any], half: Callable[..., None]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(writes) == write:
                half(*arguments)
                raise Interrupted
            return original(*arguments, **options)

        return call

    def nothing(*_: object, **__: object) -> None:
        pass

    def half_written(path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", interruptible(Path.write_bytes, half_written))
        copy = interruptible(shutil.copyfile, lambda source, target: half_written(target, source.read_bytes()))
        patch.setattr(shutil, "copyfile", copy)
        for name in ("mkdir", "replace", "unlink", "rmdir"):
            patch.setattr(Path, name, interruptible(getattr(Path, name), nothing))
        if killed:
            patch.setattr(shutil, "rmtree", nothing)
        yield


def assert_holds_together(folder: Path) -> None:
    """What the manifest, SHA256SUMS and every page that the index leads to name is there, and is what they say."""
    wheels = folder / "wheels"
    sums = folder / "SHA256SUMS"
    listed = sums.read_text().splitlines() if sums.exists() else []
    for line in listed:
        digest, name = line.split("  ")
        assert file_sha256(folder / name) == digest
    for row in read_manifest(folder):
        assert file_sha256(wheels / row.filename) == row.sha256
        assert file_sha256(wheels / f"{row.filename}.metadata") == row.metadata_sha256
        assert f"{row.sha256}  wheels/{row.filename}" in listed
    root = folder / "simple/index.html"
    for link in reachable(root) if root.exists() else ():
        path = path_of(link.url)
        assert urlsplit(link.url).fragment == f"sha256={file_sha256(path)}"
        assert link.attrs["data-core-metadata"] == f"sha256={file_sha256(path.with_name(f'{path.name}.metadata'))}"


Job = Callable[[Path, Sequence[Path]], object]
"""Does something to a release folder, with wheels to publish at hand."""


def publish_two(folder: Path, wheels: Sequence[Path]) -> None:
    make_release(folder, wheels[:2])


def yank_one(folder: Path, _: Sequence[Path]) -> None:
    publisher = DirectoryPublisher(folder)
    write_pages(folder, render_index(yank(publisher, publisher.rows()[-1].filename, "wrong kernels")))


def validate_one(folder: Path, _: Sequence[Path]) -> None:
    publisher = DirectoryPublisher(folder)
    write_pages(folder, render_index(add_evidence(publisher, [amd_validation(publisher.rows()[-1])])))


def unlist_one(folder: Path, _: Sequence[Path]) -> None:
    """Write the index without the only wheel of one of its folders."""
    write_pages(folder, render_index(read_manifest(folder)[:-1]))


@pytest.mark.parametrize(
    ("published", "job", "least", "killed"),
    [
        pytest.param(0, publish_two, 12 * 3, True, id="first publish", marks=pytest.mark.slow),
        pytest.param(1, publish_two, 6 * 3, True, id="publish more", marks=pytest.mark.slow),
        pytest.param(1, publish_two, 6 * 3, False, id="publish more, with cleanup"),
        pytest.param(3, yank_one, 2 * 3, True, id="yank"),
        pytest.param(3, validate_one, 3, True, id="evidence"),
        pytest.param(3, unlist_one, 12, True, id="fewer pages"),
    ],
)
def test_an_interrupted_release_is_consistent_and_the_same_call_completes_it(
    tmp_path: Path, three_wheels: Sequence[Path], published: int, job: Job, least: int, killed: bool
) -> None:
    """`least` is the minimum number of writes: three for each file, which is written elsewhere and then moved."""
    before, after = tmp_path / "before", tmp_path / "after"
    make_release(before, three_wheels[:published])
    job(shutil.copytree(before, after), three_wheels)
    for write in count():
        folder = shutil.copytree(before, tmp_path / str(write))
        try:
            with interrupted_at(write, killed=killed):
                job(folder, three_wheels)
        except Interrupted:
            assert read_manifest(folder) in (read_manifest(before), read_manifest(after))
            assert_holds_together(folder)
            job(folder, three_wheels)
            remove_scratch(folder)
            assert content_of(folder) == content_of(after)
        else:
            break
    assert write >= least
