"""A release of the matrix -> its unpacked sources, which are what the matrix pins, byte for byte.

Unpacking happens per build, so that no build sees what another one left.
"""

from __future__ import annotations

import lzma
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pypi_simple import PYPI_SIMPLE_ENDPOINT

from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import SourceError
from wheelfactory.core.files import atomic_path, scratch_dir
from wheelfactory.core.http import http_error_reason
from wheelfactory.core.package_index import INDEX_ERRORS, package_index
from wheelfactory.core.process import capture
from wheelfactory.core.progress import logger
from wheelfactory.matrix.facts import FlashAttn, GitTag

if TYPE_CHECKING or sys.version_info >= (3, 12):
    import tarfile
else:  # before 3.10.12 and 3.11.4 the standard library's cannot be told to stay in a folder
    from backports import tarfile

_GIT_PLACES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"})
"""What git exports to a hook, and would take for the repository to work in."""


@dataclass(frozen=True)
class Source:
    """Sources on disk: a tar file, what identifies its content, and its time in seconds since 1970."""

    archive: Path
    identity: str
    """``sha256:...`` of an sdist, ``commit:...`` of a git tag."""
    epoch: int


def fetch_source(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> Source:
    """The sources of a flash-attn release, from the cache or else from PyPI or git.

    Raises `SourceError` if they cannot be had or are not what the matrix pins; nothing is kept then.
    """
    if release.sdist:
        archive = fetch_file("flash-attn", release.sdist.file, release.sdist.sha256, cache, environ)
        return Source(archive, f"sha256:{release.sdist.sha256}", _epoch(archive))
    assert release.git
    return _fetch_git(version, release.git, cache, environ)


def fetch_file(project: str, filename: str, sha256: str, cache: Path, environ: Mapping[str, str]) -> Path:
    """A file of a PyPI project with exactly this sha256, downloaded unless the cache has it.

    ``PIP_INDEX_URL`` in `environ` names another index and ``PIP_CERT`` another list of authorities, as they do for
    pip. Raises `SourceError`.
    """
    path = cache / sha256[:16] / filename
    if path.is_file() and file_sha256(path) == sha256:
        return path
    logger.info("downloading %s", filename)
    index = environ.get("PIP_INDEX_URL") or PYPI_SIMPLE_ENDPOINT
    with atomic_path(path) as written, package_index(index, environ) as client:
        try:
            packages = {package.filename: package for package in client.get_project_page(project).packages}
            if filename not in packages:
                raise SourceError("not on the index", f"{filename} of {project}", "check its name in matrix.yaml")
            client.download_package(packages[filename], written, verify=False)
        except INDEX_ERRORS as error:
            raise SourceError(
                "cannot download",
                f"{filename}: {http_error_reason(error)}",
                "check the network, or set PIP_INDEX_URL to an index that is reachable",
            ) from error
        found = file_sha256(written)
        if found != sha256:
            raise SourceError(
                "sha256 mismatch",
                f"{filename}: the matrix pins {sha256}, the download has {found}",
                "nothing was kept; if the file was replaced upstream, find out why before changing the pin",
            )
    return path


def _epoch(archive: Path) -> int:
    """The newest time in an archive: the same for everyone who has the file."""
    with _open_tar(archive) as tar:
        return max((int(member.mtime) for member in tar), default=0)


@contextmanager
def _open_tar(archive: Path) -> Iterator[tarfile.TarFile]:
    """A tar file to read from. Raises `SourceError` if it is none, is damaged, or wants to write where it must not."""
    try:
        with tarfile.open(archive) as tar:
            yield tar
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SourceError(
            "not a source archive", f"{archive.name}: {error}", "check that matrix.yaml names the sdist"
        ) from None


def _fetch_git(version: str, git: GitTag, cache: Path, environ: Mapping[str, str]) -> Source:
    known = cache / f"git-{git.commit}" / f"flash_attn-{version}.tar" if git.commit else None
    if known and known.is_file():
        return Source(known, f"commit:{git.commit}", _epoch(known))
    logger.info("cloning %s, %s", git.repository, git.tag or git.commit)
    with scratch_dir(cache) as scratch:
        tree = scratch / f"flash_attn-{version}"
        commit, epoch = _checkout(git, tree, environ)
        path = cache / f"git-{commit}" / f"flash_attn-{version}.tar"
        with atomic_path(path) as written:
            _pack(tree, written, epoch)
        return Source(path, f"commit:{commit}", epoch)


def _checkout(git: GitTag, tree: Path, environ: Mapping[str, str]) -> tuple[str, int]:
    """Check out a tag (or commit) with its submodules; give its commit id and its time."""

    # for git in a folder of its own, even if a hook of another repository runs this, and never asking a question
    kept = {name: value for name, value in environ.items() if name not in _GIT_PLACES}

    def call(*arguments: str) -> str:
        return capture(
            ["git", *arguments],
            failure=SourceError,
            environ={**kept, "GIT_TERMINAL_PROMPT": "0"},
            cwd=tree,
            hint="check the repository and the tag in matrix.yaml, and the network",
        ).strip()

    tree.mkdir()
    call("init", "--quiet")
    call(
        "fetch",
        "--quiet",
        "--depth=1",
        "--",
        git.repository,
        f"refs/tags/{git.tag}" if git.tag else str(git.commit),
    )
    commit = call("rev-parse", "FETCH_HEAD^{commit}")
    if git.commit and commit != git.commit:
        raise SourceError(
            "commit mismatch",
            f"{git.repository}: the matrix pins {git.commit}, tag {git.tag} is {commit}",
            "nothing was kept; if the tag was moved upstream, find out why before changing the pin",
        )
    call("checkout", "--quiet", commit)
    call("remote", "add", "origin", git.repository)  # submodules may be named relative to it
    call("submodule", "--quiet", "update", "--init", "--recursive", "--depth=1")
    return commit, int(call("show", "--no-patch", "--format=%ct", commit))


def _pack(tree: Path, archive: Path, epoch: int) -> None:
    """Pack a checkout without git's own files: setup.py would otherwise call git to update submodules."""

    def normal(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(member.name).name == ".git":
            return None
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        member.mode = 0o755 if member.mode & 0o100 else 0o644  # git keeps one bit; the rest is the umask
        return member

    with tarfile.open(archive, "w") as tar:
        tar.add(tree, tree.name, filter=normal)


def unpack_source(source: Source, folder: Path) -> Path:
    """Unpack sources into `folder` and give the folder that holds setup.py. Raises `SourceError`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _open_tar(source.archive) as tar:
        for member in tar:
            if member.name.startswith("/"):  # the filter would drop the slash and go on
                raise tarfile.AbsolutePathError(member)
        tar.extractall(folder, filter="data")
    found = [path.parent for path in folder.glob("*/setup.py")]
    if len(found) != 1:
        raise SourceError(
            f"{len(found)} folders with setup.py, not one",
            source.archive.name,
            "the archive is not a flash-attn source distribution",
        )
    return found[0]
