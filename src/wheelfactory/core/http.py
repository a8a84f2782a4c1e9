"""How an index of packages is asked over the network: the session, its patience, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping

import requests
from pypi_simple import NoSuchProjectError, UnsupportedContentTypeError, UnsupportedRepoVersionError
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

NETWORK_TIMEOUT_S = 60

RETRIES = Retry(total=3, backoff_factor=0.25, status_forcelist=(429, 500, 502, 503, 504))

NO_INDEX = (
    requests.RequestException,
    NoSuchProjectError,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
    ValueError,  # JSON that is none, or not of an index
)
"""What asking an index of packages raises when it cannot be reached or answers something else."""


def index_session(environ: Mapping[str, str]) -> requests.Session:
    """A session that asks again when a server is busy, as pip does."""
    session = requests.Session()
    session.verify = environ.get("PIP_CERT") or True
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=RETRIES))
    return session
