"""An index of packages, such as PyPI, over the session of `core.http`; apart, as pypi-simple takes 0.3 s to load."""

from __future__ import annotations

from collections.abc import Mapping

import requests
from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError, UnsupportedRepoVersionError

from wheelfactory.core.http import http_session

INDEX_ERRORS = (
    requests.RequestException,
    NoSuchProjectError,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
    ValueError,  # JSON that is none, or not of an index
)
"""What asking an index raises when it cannot be reached or answers something else."""


def package_index(url: str, environ: Mapping[str, str]) -> PyPISimple:
    """The index at an address; ``PIP_CERT`` in `environ` counts as for pip. Close it after use."""
    return PyPISimple(url, session=http_session(environ))
