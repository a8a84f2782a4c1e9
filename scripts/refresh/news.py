"""Notice what matrix.yaml has no entry for: a ROCm, a flash-attn release, a newer commit than that of a preview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import requests
from packaging.version import Version
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from refresh.torch_index import TorchIndex
from wheelfactory.core.cell import preview_commit
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.http import http_error_reason, open_package_index
from wheelfactory.core.process import GIT_ENVIRON, capture
from wheelfactory.matrix.facts import Matrix

_NETWORK = "check the network"


@dataclass(frozen=True)
class News:
    """What needs an entry by a person, and which places could not be asked."""

    suggestions: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def lines(self) -> Iterator[str]:
        """Report lines for the reviewer."""
        yield from (f"suggested  {suggestion}" for suggestion in self.suggestions)
        yield from (f"failed     {failure}" for failure in self.failures)

    @property
    def summary(self) -> str:
        """The counts, on one line."""
        return f"{len(self.suggestions)} new versions or commits without an entry"


def find_news(matrix: Matrix, index: TorchIndex, environ: Mapping[str, str]) -> News:
    """Ask PyTorch's index, PyPI (or ``PIP_INDEX_URL`` in `environ`) and the repositories of the previews.

    A place that fails is reported, and the others are asked.
    """
    suggestions: list[str] = []
    failures: list[str] = []
    asks: tuple[Callable[[], Iterator[str]], ...] = (
        lambda: _new_rocms(matrix, index),
        lambda: _new_releases(matrix, environ),
        lambda: _new_commits(matrix, environ),
    )
    for ask in asks:
        try:
            suggestions += ask()
        except FactoryError as error:
            failures.append(str(error))
    return News(tuple(suggestions), tuple(failures))


def _new_rocms(matrix: Matrix, index: TorchIndex) -> Iterator[str]:
    oldest = min(map(Version, matrix.rocm))
    known = {*map(Version, matrix.rocm)}
    for rocm, torch in index.find_rocms().items():
        if rocm > oldest and rocm not in known:
            yield f"an entry under rocm: for {rocm}: PyTorch's index has torch {torch}+rocm{rocm}"


def _new_releases(matrix: Matrix, environ: Mapping[str, str]) -> Iterator[str]:
    address = environ.get("PIP_INDEX_URL") or PYPI_SIMPLE_ENDPOINT
    try:
        with open_package_index(address, environ) as index:
            packages = index.get_project_page("flash-attn").packages
    except requests.RequestException as error:
        raise FactoryError("cannot read an index", f"flash-attn: {http_error_reason(error)}", _NETWORK) from error
    known = {Version(version) for version in matrix.flash_attn}
    sdists = [package for package in packages if package.package_type == "sdist" and not package.is_yanked]
    found = {Version(package.version) for package in sdists if package.version}
    for version in sorted(found - known, reverse=True):
        if version > min(known) and not version.is_prerelease:
            yield f"an entry under flash-attn: for {version}, which PyPI has"


def _new_commits(matrix: Matrix, environ: Mapping[str, str]) -> Iterator[str]:
    for version, release in matrix.flash_attn.items():
        if release.git and preview_commit(version):
            command = ["git", "ls-remote", release.git.repository, "HEAD"]
            listed = capture(command, failure=FactoryError, environ={**environ, **GIT_ENVIRON}, hint=_NETWORK)
            head = listed.partition("\t")[0]
            if head != release.git.commit:
                yield f"another commit for the preview {version}: upstream's main branch is at {head[:12]}"
