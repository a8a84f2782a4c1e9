"""PyTorch's index of a ROCm (PEP 503 pages) -> the torch releases on it, and the Pythons of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from wheelfactory.core.errors import FactoryError
from wheelfactory.core.http import http_error_reason
from wheelfactory.core.package_index import INDEX_ERRORS, package_index
from wheelfactory.matrix.facts import Rocm

PYTORCH = "https://download.pytorch.org/whl"

TorchReleases: TypeAlias = Mapping[Version, frozenset[str]]
"""torch releases, without the label of their ROCm, and the Pythons (``3.12``) that each has a wheel for."""

_PYTHON = re.compile("cp3([1-9][0-9]?)")
_LONGEST_NAME = 255
"""Of a file, as Linux has it; the tags that a longer one could be short for would fill the memory."""
_PLATFORM = re.compile("(linux|manylinux[0-9_]+)_x86_64")
_HINT = "check the network and the index of that entry in matrix.yaml; nothing was changed"


class TorchIndex:
    """PyTorch's index, or a mirror of it at another address."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        """`environ` is that of the process; ``PIP_CERT`` counts as for pip."""
        self._url = url.rstrip("/")
        self._environ = environ

    def address(self, rocm: Rocm) -> str:
        """Where the index of a ROCm entry is asked: below this address if it is one of PyTorch's, else where it is."""
        own = rocm.index.startswith(f"{PYTORCH}/")
        return self._url + rocm.index.removeprefix(PYTORCH) if own else rocm.index

    def find_releases(self, entry: str, rocm: Rocm) -> TorchReleases:
        """What the index of a ROCm entry has. Raises `FactoryError` that names the entry if it has no torch, or fails.

        An index without any torch is never what was meant: a page of something else, or that of another ROCm.
        """
        address = self.address(rocm)
        try:
            with package_index(address, self._environ) as index:
                page = index.get_project_page("torch")
            urls = [urlsplit(package.url) for package in page.packages if not package.is_yanked]
            # as pip takes it, from its address; a page may write another name for people to read
            found = parse_torch_releases((unquote(url.path.rpartition("/")[2]) for url in urls), entry)
        except (*INDEX_ERRORS, RecursionError) as error:  # the parser of HTML goes as deep as a page is nested
            which = f"that of ROCm {entry}, {address}: {http_error_reason(error)}"
            raise FactoryError("cannot ask an index", which, _HINT) from error
        if not found:
            which = f"that of ROCm {entry}, {address}, has no torch+rocm{entry} for linux x86_64"
            raise FactoryError("not the index that was meant", which, _HINT)
        return found


def parse_torch_releases(filenames: Iterable[str], entry: str) -> dict[Version, frozenset[str]]:
    """The torch releases for a ROCm that files of these names are, for linux x86_64, without pre-releases.

    Only a wheel labelled ``+rocm`` and the entry counts, as a build asks for that one; torch from other places has
    other labels. A name that is none of a wheel is passed over, as pip does. A build without the GIL (``cp313t``) is
    another Python.
    """
    found: dict[Version, frozenset[str]] = {}
    for filename in filenames:
        if len(filename) > _LONGEST_NAME:
            continue
        try:
            name, version, _, tags = parse_wheel_filename(filename)
        except InvalidWheelFilename:
            continue
        release = Version(version.public)
        if name != "torch" or version.is_prerelease or version != Version(f"{release}+rocm{entry}"):
            continue
        pythons = {
            f"3.{match[1]}"
            for tag in tags
            if (match := _PYTHON.fullmatch(tag.interpreter))
            and tag.abi == tag.interpreter
            and _PLATFORM.fullmatch(tag.platform)
        }
        if pythons:
            found[release] = found.get(release, frozenset()) | pythons
    return found
