"""Read the torch releases on PyTorch's index of a ROCm (PEP 503 pages), and the Pythons of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import requests
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from wheelfactory.core.cell import name_python
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.http import http_error_reason, open_package_index
from wheelfactory.matrix.facts import Rocm

PYTORCH = "https://download.pytorch.org/whl"

TorchReleases: TypeAlias = Mapping[Version, frozenset[str]]
"""The Pythons (``3.12``) with a wheel, by torch release without its ROCm label."""

_PYTHON = re.compile("cp3[1-9][0-9]?")
_MAX_FILENAME = 255
"""The limit of Linux. Compressed tag sets multiply, so that a longer name could expand to fill the memory."""
_PLATFORM = re.compile("(linux|manylinux[0-9_]+)_x86_64")
_ROCM_LABEL = re.compile(r"torch-(?P<torch>[0-9]+(?:\.[0-9]+)*)\+rocm(?P<rocm>[0-9]+(?:\.[0-9]+)+)-")
_HINT = "check the network and the index of that entry in matrix.yaml"


class TorchIndex:
    """PyTorch's index, or a mirror of it at another address."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        """`environ` is the environment of the process; its ``PIP_CERT`` names a CA bundle."""
        self._url = url.rstrip("/")
        self._environ = environ

    def address(self, rocm: Rocm) -> str:
        """The URL of the index of a ROCm entry: on this mirror if the index is one of PyTorch's, else unchanged."""
        is_pytorch = rocm.index.startswith(f"{PYTORCH}/")
        return self._url + rocm.index.removeprefix(PYTORCH) if is_pytorch else rocm.index

    def find_releases(self, entry: str, rocm: Rocm) -> TorchReleases:
        """Read the index of a ROCm entry. Raises `FactoryError` if it fails, or has no torch for that ROCm."""
        address = self.address(rocm)
        found = parse_torch_releases(self._read_names(address, f"ROCm {entry}"), entry)
        if not found:
            which = f"ROCm {entry}, {address} has no torch+rocm{entry} for linux x86_64"
            raise FactoryError("wrong index", which, _HINT)
        return found

    def find_rocms(self) -> dict[Version, Version]:
        """The newest stable torch by ROCm, from the page of all builds. Raises `FactoryError` if it fails."""
        found: dict[Version, Version] = {}
        for filename in self._read_names(self._url, "all builds"):
            label = _ROCM_LABEL.match(filename)
            if label and len(filename) <= _MAX_FILENAME:
                rocm, torch = Version(label["rocm"]), Version(label["torch"])
                found[rocm] = max(torch, found.get(rocm, torch))
        return found

    def _read_names(self, address: str, what: str) -> list[str]:
        """The names of the files of torch on an index, without yanked ones. Raises `FactoryError`."""
        try:
            with open_package_index(address, self._environ) as index:
                page = index.get_project_page("torch")
                urls = [urlsplit(package.url) for package in page.packages if not package.is_yanked]
            # file names from the URLs, as pip reads them; the text of a link can differ
            return [unquote(url.path.rpartition("/")[2]) for url in urls]
        except requests.RequestException as error:
            which = f"{what}, {address}: {http_error_reason(error)}"
            raise FactoryError("cannot read an index", which, _HINT) from error


def parse_torch_releases(filenames: Iterable[str], entry: str) -> dict[Version, frozenset[str]]:
    """Parse the names of torch wheels for a ROCm, on linux x86_64, without pre-releases.

    Names of other files are ignored, as pip does.
    """
    found: dict[Version, frozenset[str]] = {}
    for filename in filenames:
        if len(filename) > _MAX_FILENAME:
            continue
        try:
            name, version, _, tags = parse_wheel_filename(filename)
        except InvalidWheelFilename:
            continue
        release = Version(version.public)
        # builds request torch by this exact label; torch from other sources has other labels
        if name != "torch" or version.is_prerelease or version != Version(f"{release}+rocm{entry}"):
            continue
        pythons = {
            name_python(tag.interpreter)
            for tag in tags
            if _PYTHON.fullmatch(tag.interpreter)
            and tag.abi == tag.interpreter  # not cp313t, the free-threaded build
            and _PLATFORM.fullmatch(tag.platform)
        }
        if pythons:
            found[release] = found.get(release, frozenset()) | pythons
    return found
