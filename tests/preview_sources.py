"""flash-attn at commit 4a948e9c, for tests, as near as registries come to it.

Real: upstream's setup.py, Python package and bindings of that commit, from the shared sources. Its Composable Kernel
submodule is in no registry; in its place is the nearest, from PyPI's sdist of amd-aiter (without code for gfx11).
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from wheelfactory.build.sources import fetch_file
from wheelfactory.core.files import file_sha256
from wheelfactory.matrix.facts import FlashAttn

_DATA = Path(__file__).resolve().parents[2] / "shared/data"
FLASH_ATTN, AITER = _DATA / "flash-attention-4a948e9c.tar.gz", _DATA / "aiter-9bab8388-python.tar.gz"
"""The sources of the preview, and of the aiter that it names."""
VERSION = "2.8.4+git4a948e9"

_AITER = "amd_aiter-0.1.7.post2.dev18"
_AITER_SHA256 = "561b9b2baa4e75ea02890f2e54d1c2ce9e5c128bd1012b4f4780d47e1a5a41a1"
_CK = f"{_AITER}/aiter_meta/3rdparty/composable_kernel/"
_CK_PARTS = tuple(_CK + part for part in ("include/", "library/include/", "example/ck_tile/01_fmha/"))


def make_preview_release(cache: Path, archs: list[str]) -> FlashAttn:
    """Put the sources as an sdist into the downloads of a cache; return the release that names it, for these archs.

    Skips the test where the shared sources are missing, as in a clone of this repository alone.
    """
    _require(FLASH_ATTN)
    name = f"flash_attn-{VERSION.partition('+')[0]}.tar.gz"
    made = cache / "sources" / name
    _pack(cache, made)
    digest = file_sha256(made)
    kept = cache / "sources" / digest[:16] / name
    kept.parent.mkdir(exist_ok=True)
    shutil.move(made, kept)
    ck = {"archs": archs, "cxx-standard": "20", "wheel-size": "10 kB to 2000 MB", "source": "written for the tests"}
    sdist = {"file": name, "sha256": digest}
    return FlashAttn.model_validate({"sdist": sdist, "python": ">=3.9", "ck": ck, "source": "the shared sources"})


def read_setup_py() -> tuple[str, str]:
    """The commit of the shared sources, as ``git archive`` wrote it into them, and their setup.py. Skips as above."""
    _require(FLASH_ATTN)
    with _open(FLASH_ATTN) as tree:
        (member,) = (member for member in tree if member.name.endswith("/setup.py") and member.name.count("/") == 1)
        setup = tree.extractfile(member)
        assert setup
        return tree.pax_headers["comment"], setup.read().decode()


def read_upstream(archive: Path, folder: str) -> dict[str, bytes]:
    """The files below a folder of shared sources, such as ``aiter/``, by path. Skips as above."""
    _require(archive)
    with _open(archive) as tree:
        files = {member.name.partition("/")[2]: tree.extractfile(member) for member in tree if member.isfile()}
        return {name: file.read() for name, file in files.items() if file and name.startswith(folder)}


def _require(archive: Path) -> None:
    if not archive.is_file():
        pytest.skip(f"no sources of the commit: {archive.name} is in no registry")


def _open(archive: Path) -> tarfile.TarFile:
    raw = gzip.decompress(archive.read_bytes())
    # a line of git's output precedes the archive in one file
    return tarfile.open(fileobj=io.BytesIO(raw[max(0, raw.find(b"pax_global_header")) :]))


def _pack(cache: Path, archive: Path) -> None:
    sdist = fetch_file("amd-aiter", f"{_AITER}.tar.gz", _AITER_SHA256, cache / "sources", os.environ)
    root = f"flash_attn-{VERSION.partition('+')[0]}"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        with _open(FLASH_ATTN) as tree:
            for member in tree:
                _, _, path = member.name.partition("/")
                _copy(tree, member, f"{root}/{path}", packed)
        with tarfile.open(sdist) as tree:
            for member in tree:
                if member.name.startswith(_CK_PARTS):
                    path = f"{root}/csrc/composable_kernel/{member.name.removeprefix(_CK)}"
                    _copy(tree, member, path, packed)


def _copy(tree: tarfile.TarFile, member: tarfile.TarInfo, name: str, packed: tarfile.TarFile) -> None:
    if member.isfile():
        content = tree.extractfile(member)
        member.name, member.pax_headers = name, {}
        packed.addfile(member, content)
