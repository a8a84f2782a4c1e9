"""Fetch the sources of a release, verify them against the matrix's pin, and unpack them.

Every build unpacks its own copy, so that no build sees files of another.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfactory.core.errors import SourceError
from wheelfactory.core.files import atomic_path, content_key, file_sha256, scratch_dir, write_atomic
from wheelfactory.core.http import http_error_reason, require_ok, save_body
from wheelfactory.core.process import GIT_ENVIRON, capture
from wheelfactory.core.progress import logger
from wheelfactory.matrix.facts import FlashAttn
from wheelfactory.matrix.origins import GitTag
from wheelfactory.wheel.corrections import correct_sources

if TYPE_CHECKING or sys.version_info >= (3, 12):
    import tarfile
else:  # before 3.10.12 and 3.11.4 the standard library's tarfile has no extraction filter
    from backports import tarfile

_MAX_SOURCE_BYTES = 1 << 30

# a third of the files of a release, which only builds for CUDA read
_CUDA_ONLY = "csrc/cutlass/"

# what reading a damaged archive raises beside `tarfile.TarError`: for numbers and times out of range, a link to a file
# that it lacks, folders that are nested too deep
_TAR_ERRORS = (EOFError, ArithmeticError, LookupError, RecursionError, ValueError, zlib.error, lzma.LZMAError)

# variables that git sets in a hook; they would make our git work in the hook's repository
_GIT_LOCATION_VARIABLES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}
)


@dataclass(frozen=True)
class Source:
    """Sources on disk, as a tar file. `epoch` is their time, in seconds since 1970."""

    archive: Path
    identity: str
    """``sha256:...`` of an sdist, ``commit:...`` of a git source."""
    epoch: int


def fetch_source(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> Source:
    """Fetch the sources of a flash-attn release from the cache, PyPI or git.

    Raises `SourceError` if they cannot be fetched or differ from the matrix's pin; nothing is cached then.
    """
    if release.sdist:
        archive = fetch_file("flash-attn", release.sdist.file, release.sdist.sha256, cache, environ)
        return Source(archive, f"sha256:{release.sdist.sha256}", _epoch(archive))
    assert release.git
    return fetch_git(f"flash_attn-{version}", release.git, cache, environ)


def fetch_file(project: str, filename: str, sha256: str, cache: Path, environ: Mapping[str, str]) -> Path:
    """Fetch a file of a PyPI project with this sha256 from the cache or the index.

    ``PIP_INDEX_URL`` and ``PIP_CERT`` in `environ` set the index and the CA bundle, as for pip. Raises `SourceError`.
    """
    path = cache / sha256[:16] / filename
    if path.is_file() and file_sha256(path) == sha256:
        return path
    # imported late: takes a quarter of a command's start, and the cache usually has the file
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    from wheelfactory.core.package_index import INDEX_ERRORS, package_index

    logger.info("downloading %s", filename)
    index = environ.get("PIP_INDEX_URL") or PYPI_SIMPLE_ENDPOINT
    with atomic_path(path) as written, package_index(index, environ) as client:
        try:
            packages = {package.filename: package for package in client.get_project_page(project).packages}
            if filename not in packages:
                hint = "check its name in matrix.yaml"
                raise SourceError("no such file on the index", f"{filename} of {project}", hint)
            with client.s.get(packages[filename].url, stream=True) as response:
                require_ok(response)
                save_body(response, written, _MAX_SOURCE_BYTES)
        except INDEX_ERRORS as error:
            hint = "check the network, or set PIP_INDEX_URL to a reachable index"
            raise SourceError("cannot download", f"{filename}: {http_error_reason(error)}", hint) from error
        found = file_sha256(written)
        if found != sha256:
            which = f"{filename}: the matrix pins {sha256}, the download has {found}"
            hint = "nothing was cached; if upstream replaced the file, find out why before you change the pin"
            raise SourceError("sha256 mismatch", which, hint)
    return path


def _epoch(archive: Path) -> int:
    """The newest time in an archive, by its content only; kept beside it, because finding it takes a second."""
    kept = archive.with_name(f"{archive.name}.epoch")
    with suppress(OSError, ValueError):
        return int(kept.read_text(encoding="ascii"))
    with _open_tar(archive) as tar:
        newest = max((int(member.mtime) for member in tar), default=0)
    with suppress(OSError):  # a cache that cannot be written
        write_atomic(kept, b"%d" % newest)
    return newest


@contextmanager
def _open_tar(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar file. Raises `SourceError` if it is damaged, or tries to write outside its folder."""
    try:
        with tarfile.open(archive) as tar:
            yield tar
    except (tarfile.TarError, *_TAR_ERRORS) as error:
        hint = f"check that matrix.yaml names the sdist, or delete {archive}, which is then fetched again"
        why = str(error).partition(":\n")[0]
        raise SourceError("invalid source archive", f"{archive.name}: {why}", hint) from None


def fetch_git(name: str, git: GitTag, cache: Path, environ: Mapping[str, str]) -> Source:
    """Fetch a git tag or commit from the cache or its repository, packed below a folder `name`.

    Raises `SourceError` as `fetch_source` does.
    """
    # which submodules an archive has is not in its commit
    chosen = f"-{content_key(json.dumps(git.submodules, sort_keys=True))}" if git.submodules is not None else ""
    known = cache / f"git-{git.commit}{chosen}" / f"{name}.tar" if git.commit else None
    if known and known.is_file():
        return Source(known, f"commit:{git.commit}", _epoch(known))
    logger.info("cloning %s, %s", git.repository, git.tag or git.commit)
    with scratch_dir(cache) as scratch:
        tree = scratch / name
        commit, epoch = _checkout(git, tree, environ)
        path = cache / f"git-{commit}{chosen}" / f"{name}.tar"
        with atomic_path(path) as written:
            _pack(tree, written, epoch)
        return Source(path, f"commit:{commit}", epoch)


def _checkout(git: GitTag, tree: Path, environ: Mapping[str, str]) -> tuple[str, int]:
    """Check out a tag or commit with its submodules, and return its commit id and time."""

    # never the repository of a hook that runs this
    own = {name: value for name, value in environ.items() if name not in _GIT_LOCATION_VARIABLES} | GIT_ENVIRON

    def call(*arguments: str) -> str:
        hint = "check the network, and the repository and the tag or commit in matrix.yaml"
        return capture(["git", *arguments], failure=SourceError, environ=own, cwd=tree, hint=hint).strip()

    tree.mkdir()
    call("init", "--quiet")
    wanted = f"refs/tags/{git.tag}" if git.tag else str(git.commit)
    call("fetch", "--quiet", "--depth=1", "--", git.repository, wanted)
    commit = call("rev-parse", "FETCH_HEAD^{commit}")
    if git.commit and commit != git.commit:
        which = f"{git.repository}: the matrix pins {git.commit}, tag {git.tag} is {commit}"
        hint = "nothing was cached; if upstream moved the tag, find out why before you change the pin"
        raise SourceError("commit mismatch", which, hint)
    call("checkout", "--quiet", commit)
    call("remote", "add", "origin", git.repository)  # base of relative submodule URLs
    if git.submodules is None:
        call("submodule", "--quiet", "update", "--init", "--recursive", "--depth=1")
    for path, pin in (git.submodules or {}).items():
        found = call("rev-parse", f"HEAD:{path}")
        if found != pin:
            which = f"{path} of {git.repository}: the matrix pins {pin}, {git.tag or commit} has {found}"
            hint = "nothing was cached; write the commit of the submodule into matrix.yaml"
            raise SourceError("commit mismatch", which, hint)
        call("submodule", "--quiet", "update", "--init", "--depth=1", "--", path)
    return commit, int(call("show", "--no-patch", "--format=%ct", commit))


def _pack(tree: Path, archive: Path, epoch: int) -> None:
    """Pack a checkout reproducibly, without git's own files: with them, setup.py would call git for submodules."""

    def normalize(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(member.name).name == ".git":
            return None
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        # git stores only the executable bit; the rest is the umask
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member

    with tarfile.open(archive, "w") as tar:
        tar.add(tree, tree.name, filter=normalize)


def _filter_member(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    if member.name.startswith("/"):  # the filter would strip the slash instead of refusing
        raise tarfile.AbsolutePathError(member)
    is_unused = member.name.partition("/")[2].startswith(_CUDA_ONLY)
    return None if is_unused else tarfile.data_filter(member, folder)


def unpack_source(source: Source, folder: Path) -> Path:
    """Unpack sources for ROCm into `folder`, and return the folder with setup.py, with upstream's code corrected.

    Raises `SourceError`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _open_tar(source.archive) as tar:
        tar.extractall(folder, filter=_filter_member)  # noqa: S202 - which refuses what "data" does
    found = [path.parent for path in folder.glob("*/setup.py")]
    if len(found) != 1:
        which = f"{source.archive.name} has {len(found)} folders with setup.py, not one"
        raise SourceError("not a source distribution", which, "check the sources in matrix.yaml")
    correct_sources(found[0])
    return found[0]
