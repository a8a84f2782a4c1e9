"""Sources from a real index on loopback and from real git repositories: only pinned sources are accepted and cached."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopback import Handler, answering
from wheelfactory.build.sources import Source, fetch_file, fetch_git, fetch_source, unpack_source
from wheelfactory.core.errors import SourceError
from wheelfactory.core.process import GIT_ENVIRON
from wheelfactory.matrix.facts import FlashAttn
from wheelfactory.matrix.origins import GitTag
from wheelfactory.wheel.corrections import Correction, Line

NEWEST = 1755163800
SDIST = "flash_attn-2.8.3.tar.gz"


def make_tar(members: Mapping[str, bytes], *, kind: str = "w:gz") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=kind) as tar:  # type: ignore[call-overload]
        for number, (name, content) in enumerate(members.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), NEWEST - number
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


BODY = make_tar({"flash_attn-2.8.3/setup.py": b"# setup\n", "flash_attn-2.8.3/flash_attn/__init__.py": b""})
SHA256 = hashlib.sha256(BODY).hexdigest()


@dataclass
class Index:
    """A package index on loopback that serves the given files and records its requests."""

    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment that makes it the index."""
    asked: list[str] = field(default_factory=list)
    status: int = 200
    content_type: str = "text/html"
    page: bytes = f'<a href="/files/{SDIST}">{SDIST}</a>'.encode()


class IndexHandler(Handler):
    """Answers as the index says."""

    index: Index

    def serve(self) -> None:
        self.index.asked.append(self.path)
        if self.path.startswith("/files/"):
            self.answer(200, BODY)
        else:
            self.answer(self.index.status, self.index.page, {"Content-Type": self.index.content_type})


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    index = Index()
    with answering(IndexHandler, index=index) as url:
        index.environ = {"PIP_INDEX_URL": f"{url}/simple"}
        yield index


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without waiting."""
    monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(sleep=lambda seconds: None, time=time.time))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of this test alone."""
    return tmp_path / "cache"


def fetch(index: Index, cache: Path, sha256: str = SHA256) -> Path:
    return fetch_file("flash-attn", SDIST, sha256, cache, index.environ)


def kept(cache: Path) -> list[str]:
    """All files in the cache."""
    return sorted(path.name for path in cache.rglob("*") if not path.is_dir())


def test_a_file_with_the_pinned_sha256_is_downloaded_once(index: Index, cache: Path) -> None:
    for _ in range(2):
        assert fetch(index, cache).read_bytes() == BODY
        assert kept(cache) == [SDIST]
        assert index.asked == ["/simple/flash-attn/", f"/files/{SDIST}"]
    fetch(index, cache).write_bytes(BODY[:100])
    assert fetch(index, cache).read_bytes() == BODY, "again if the cached one is damaged"


def test_another_sha256_is_refused_and_nothing_is_cached(index: Index, cache: Path) -> None:
    with pytest.raises(SourceError, match="sha256 mismatch") as caught:
        fetch(index, cache, "0" * 64)

    assert SHA256 in caught.value.which
    assert "0" * 64 in caught.value.which
    assert "nothing was cached" in caught.value.hint
    assert kept(cache) == []


def test_a_file_missing_on_the_index_is_an_error(index: Index, cache: Path) -> None:
    index.page = b'<a href="/files/flash_attn-2.8.4.tar.gz">flash_attn-2.8.4.tar.gz</a>'

    with pytest.raises(SourceError, match=f"no such file on the index: {SDIST} of flash-attn") as caught:
        fetch(index, cache)

    assert "matrix.yaml" in caught.value.hint
    assert kept(cache) == []


@pytest.mark.parametrize(
    ("status", "content_type", "page"),
    [
        (404, "text/html", b"no such project"),
        (200, "text/plain", b"a page of a proxy"),
        (200, "application/vnd.pypi.simple.v1+json", b"{}"),
        (200, "application/vnd.pypi.simple.v1+json", b"[" * 100_000),
        (200, "text/html", b"<![garbage["),
        (200, "text/html", b'<meta name="pypi:repository-version" content="9.0">'),  # of the future
    ],
)
def test_an_invalid_index_response_is_an_error(
    index: Index, cache: Path, status: int, content_type: str, page: bytes
) -> None:
    index.status, index.content_type, index.page = status, content_type, page

    with pytest.raises(SourceError, match=f"cannot download: {SDIST}") as caught:
        fetch(index, cache)

    assert "PIP_INDEX_URL" in caught.value.hint
    assert kept(cache) == []


def test_an_unreachable_index_is_an_error(cache: Path) -> None:
    for url in ("http://127.0.0.1:9/simple", "http://[", "nonsense"):
        with pytest.raises(SourceError, match="cannot download"):
            fetch_file("flash-attn", SDIST, SHA256, cache, {"PIP_INDEX_URL": url})
    assert kept(cache) == []


def release(**origin: Mapping[str, object]) -> FlashAttn:
    return FlashAttn.model_validate({"python": ">=3.9", "source": "written for the tests", **origin})


def test_an_sdist_has_its_sha256_and_the_time_of_its_newest_member(index: Index, cache: Path) -> None:
    source = fetch_source("2.8.3", release(sdist={"file": SDIST, "sha256": SHA256}), cache, index.environ)

    assert source == Source(cache / SHA256[:16] / SDIST, f"sha256:{SHA256}", NEWEST)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="every patch release of this Python has the filter")
def test_sources_unpack_without_the_standard_librarys_filter(
    index: Index, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like Python 3.11.2 of Debian 12, whose `extractall` has no parameter `filter`."""

    def extractall(self: object, path: str = ".", members: object = None, *, numeric_owner: bool = False) -> None:
        raise AssertionError("it would let a member leave the folder")

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    source = fetch_source("2.8.3", release(sdist={"file": SDIST, "sha256": SHA256}), cache, index.environ)

    assert (unpack_source(source, tmp_path / "source") / "setup.py").is_file()


# git: real repositories on disk


def git(folder: Path, *arguments: str | Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=work")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository like upstream's: a tag, and a submodule that is named relative to it."""
    settings = {"protocol.file.allow": "always", "user.name": "a tester", "user.email": "tester@example.org"}
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for number, (key, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_COMMITTER_DATE", f"{NEWEST} +0000")
    for name in ("composable_kernel", "flash-attention"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "--quiet")
    commit(tmp_path / "composable_kernel", {"include/ck.hpp": "#pragma once\n"})
    folder = tmp_path / "flash-attention"
    git(folder, "submodule", "--quiet", "add", "../composable_kernel", "csrc/composable_kernel")
    commit(folder, {"setup.py": "# setup\n", "flash_attn/__init__.py": ""})
    git(folder, "tag", "--annotate", "v2.6.3", "--message=release")
    return folder


def at_tag(repository: Path, /, **changes: str) -> FlashAttn:
    return release(git={"repository": repository.as_uri(), "tag": "v2.6.3", **changes})


def files_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return [member.name for member in tar if not member.isdir()]


def test_a_tag_includes_submodules_but_no_git_files_and_has_the_id_and_time_of_its_commit(
    repository: Path, cache: Path
) -> None:
    source = fetch_source("2.6.3", at_tag(repository), cache, os.environ)

    head = git(repository, "rev-parse", "HEAD")
    assert source == Source(cache / f"git-{head}/flash_attn-2.6.3.tar", f"commit:{head}", NEWEST)
    assert files_in(source.archive) == [
        "flash_attn-2.6.3/.gitmodules",
        "flash_attn-2.6.3/csrc/composable_kernel/include/ck.hpp",
        "flash_attn-2.6.3/flash_attn/__init__.py",
        "flash_attn-2.6.3/setup.py",
    ]


def test_a_commit_without_a_tag_is_fetched_once(repository: Path, cache: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    commit(repository, {"setup.py": "# later\n"})
    pinned = release(git={"repository": repository.as_uri(), "commit": head})
    first = fetch_source("2.6.3", pinned, cache, os.environ)
    shutil.rmtree(repository)

    source = fetch_source("2.6.3", pinned, cache, os.environ)

    assert source == first
    assert unpack_source(source, cache / "tree").joinpath("setup.py").read_text() == "# setup\n"


def test_only_the_submodules_of_the_matrix_are_fetched_at_their_commits(repository: Path, cache: Path) -> None:
    git(repository, "submodule", "--quiet", "add", "../composable_kernel", "csrc/cutlass")
    head = commit(repository, {"setup.py": "# two submodules\n"})
    pin = git(repository, "rev-parse", "HEAD:csrc/composable_kernel")

    def pinned(pin: str) -> FlashAttn:
        git = {"repository": repository.as_uri(), "commit": head, "submodules": {"csrc/composable_kernel": pin}}
        return release(git=git)

    source = fetch_source("2.8.4", pinned(pin), cache, os.environ)
    assert [name for name in files_in(source.archive) if "/csrc/" in name] == [
        "flash_attn-2.8.4/csrc/composable_kernel/include/ck.hpp"
    ]
    with pytest.raises(SourceError, match="commit mismatch") as caught:
        fetch_source("2.8.4", pinned("0" * 40), cache, os.environ)
    assert f"the matrix pins {'0' * 40}, {head} has {pin}" in caught.value.which


def test_a_moved_tag_is_refused_and_nothing_is_cached(repository: Path, cache: Path) -> None:
    before = git(repository, "rev-parse", "HEAD")
    after = commit(repository, {"setup.py": "# moved\n"})
    git(repository, "tag", "--force", "v2.6.3")

    with pytest.raises(SourceError, match="commit mismatch") as caught:
        fetch_source("2.6.3", at_tag(repository, commit=before), cache, os.environ)

    assert before in caught.value.which
    assert after in caught.value.which
    assert kept(cache) == []


def test_a_failed_fetch_is_an_error_and_nothing_is_cached(repository: Path, cache: Path) -> None:
    with pytest.raises(SourceError, match="command failed") as caught:
        fetch_source("2.6.3", at_tag(repository, tag="v9.9.9"), cache, os.environ)

    assert "matrix.yaml" in caught.value.hint
    assert kept(cache) == []


def test_the_repository_of_a_git_hook_is_not_touched(repository: Path, cache: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", tmp_path / "composable_kernel", "mine")
    mine = tmp_path / "mine"
    before = (git(mine, "rev-parse", "HEAD"), git(mine, "config", "--local", "--list"), git(mine, "status", "--short"))

    fetch_source("2.6.3", at_tag(repository), cache, {**os.environ, "GIT_DIR": f"{mine}/.git"})

    assert before == (
        git(mine, "rev-parse", "HEAD"),
        git(mine, "config", "--local", "--list"),
        git(mine, "status", "--short"),
    )


def test_git_never_prompts_for_a_password(repository: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "git").write_text('#!/bin/sh\necho "prompt: $GIT_TERMINAL_PROMPT"; exit 1\n')
    (tmp_path / "git").chmod(0o755)

    with pytest.raises(SourceError, match="prompt: 0"):
        fetch_source("2.6.3", at_tag(repository), cache, {"PATH": str(tmp_path)})


def test_git_does_not_wait_forever_for_a_server(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setitem(GIT_ENVIRON, "GIT_HTTP_LOW_SPEED_TIME", "1")
    with answering(Handler, serve=lambda _: done.wait(20)) as url:
        git = GitTag.model_construct(repository=url, tag="v2.6.3", commit=None, submodules=None)
        with pytest.raises(SourceError, match="Operation too slow"):
            fetch_git("flash_attn-2.6.3", git, cache, os.environ)
        done.set()


def test_two_fetches_with_different_umasks_give_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    first = fetch_source("2.6.3", at_tag(repository), tmp_path / "one", os.environ)
    before = os.umask(0o077)
    try:
        second = fetch_source("2.6.3", at_tag(repository), tmp_path / "two", os.environ)
    finally:
        os.umask(before)

    assert first.archive.read_bytes() == second.archive.read_bytes()


def test_executable_files_stay_executable(repository: Path, cache: Path) -> None:
    (repository / "setup.py").chmod(0o755)
    commit(repository, {"x.py": ""})
    git(repository, "tag", "--force", "v2.6.3")

    tree = unpack_source(fetch_source("2.6.3", at_tag(repository), cache, os.environ), cache / "tree")

    assert os.access(tree / "setup.py", os.X_OK)
    assert not os.access(tree / "x.py", os.X_OK)


# unpacking


def source_with(folder: Path, members: Mapping[str, bytes]) -> Source:
    archive = folder / SDIST
    archive.write_bytes(make_tar(members))
    return Source(archive, "sha256:0", 0)


def test_unpack_removes_files_of_an_earlier_build_and_leaves_out_what_only_cuda_needs(tmp_path: Path) -> None:
    files = {"flash_attn-2.8.3/setup.py": b"as released", "flash_attn-2.8.3/csrc/cutlass/include/a.h": b""}
    source = source_with(tmp_path, files)
    tree = unpack_source(source, tmp_path / "out")
    assert tree == tmp_path / "out/flash_attn-2.8.3"
    (tree / "setup.py").write_text("changed")
    (tree / "build").mkdir()

    unpack_source(source, tmp_path / "out")

    assert [path.name for path in tree.iterdir()] == ["setup.py"]
    assert (tree / "setup.py").read_text() == "as released"


def test_there_is_exactly_one_setup_py(tmp_path: Path) -> None:
    for count, names in ((0, ("setup.py", "flash_attn-2.8.3/csrc/setup.py")), (2, ("a/setup.py", "b/setup.py"))):
        with pytest.raises(SourceError, match=f"{count} folders with setup.py"):
            unpack_source(source_with(tmp_path, dict.fromkeys(names, b"")), tmp_path / "out")


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "{absolute}", "/{absolute}"])
def test_a_member_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    source = source_with(tmp_path, {"a/setup.py": b"", name.format(absolute=outside): b"owned"})

    with pytest.raises(SourceError, match=f"invalid source archive: {SDIST}"):
        unpack_source(source, tmp_path / "out/in")

    assert not outside.exists()
    assert not list((tmp_path / "out").rglob("outside"))


def test_a_link_to_the_outside_is_refused(tmp_path: Path) -> None:
    for target in ("/etc/passwd", "../../../etc/passwd"):
        with tarfile.open(tmp_path / SDIST, "w:gz") as tar:
            link = tarfile.TarInfo("a/setup.py")
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        with pytest.raises(SourceError, match="invalid source archive"):
            unpack_source(Source(tmp_path / SDIST, "sha256:0", 0), tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"pax_headers": {"mtime": "inf"}},
        {"pax_headers": {"mtime": "1e300"}},
        {"pax_headers": {"path": "a\0b"}},
        {"name": "a/" * 3000 + "b"},
        {"type": tarfile.LNKTYPE, "linkname": "missing"},
        {"type": tarfile.CHRTYPE},
    ],
    ids=str,
)
def test_a_member_that_cannot_be_written_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    member = tarfile.TarInfo("a/setup.py")
    for name, value in changes.items():
        setattr(member, name, value)
    with tarfile.open(tmp_path / SDIST, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member)
    with pytest.raises(SourceError, match=f"invalid source archive: {SDIST}: .+"):
        unpack_source(Source(tmp_path / SDIST, "sha256:0", 0), tmp_path / "out")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    for data in (b"not a tar", BODY[: len(BODY) // 2], BODY[:40] + bytes(20) + BODY[60:]):
        (tmp_path / SDIST).write_bytes(data)
        with pytest.raises(SourceError, match=f"invalid source archive: {SDIST}"):
            unpack_source(Source(tmp_path / SDIST, "sha256:0", 0), tmp_path / "out")


@pytest.mark.parametrize("file", ["csrc/kernel.hpp", "flash_attn/kernel.py"])
def test_unpacked_kernels_are_corrected_and_python_only_in_the_wheel(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(reason="a race", text="barrier();")
    known = Correction(file=file, sha256=hashlib.sha256(b"one\ntwo\n").hexdigest(), lines={2: line})
    monkeypatch.setattr("wheelfactory.wheel.corrections.read_corrections", lambda: (known,))

    def unpack(text: bytes) -> bytes:
        archive = tmp_path / SDIST
        archive.write_bytes(make_tar({"flash_attn-2.8.3/setup.py": b"", f"flash_attn-2.8.3/{file}": text}))
        return (unpack_source(Source(archive, "", 0), tmp_path / "tree") / file).read_bytes()

    assert unpack(b"one\ntwo\n") == (b"one\nbarrier();\n" if file.startswith("csrc/") else b"one\ntwo\n")
    assert unpack(b"one\nother\n") == b"one\nother\n", "of another release"
