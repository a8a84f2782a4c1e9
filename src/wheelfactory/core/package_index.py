"""A package index, such as PyPI, over the session of `core.http`.

A module of its own, because importing pypi-simple takes 0.3 s.
"""

from __future__ import annotations

from collections.abc import Mapping

import requests
from bs4 import ParserRejectedMarkup
from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedRepoVersionError

from wheelfactory.core.http import http_session

INDEX_ERRORS = (
    requests.RequestException,
    NoSuchProjectError,
    UnsupportedRepoVersionError,
    ValueError,  # another content type, invalid JSON, or JSON of something else
    RecursionError,  # the parsers recurse into JSON and HTML
    ParserRejectedMarkup,
)
"""The exceptions of an unreachable index, and of a server that is not one."""


def package_index(url: str, environ: Mapping[str, str]) -> PyPISimple:
    """Open the index at a URL; ``PIP_CERT`` in `environ` names a CA bundle. Close it after use."""
    return PyPISimple(url, session=http_session(environ))
