"""The HTTP session of all network requests: retries, limits of time and size, and error messages.

Only the doctor has a client of its own, because doctor.py must run without third-party packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, MaxRetryError, ResponseError
from urllib3.util import Retry

from wheelfactory.core.errors import FactoryError
from wheelfactory.core.query import DOWNLOAD_TIMEOUT_S, call_within

if TYPE_CHECKING:
    from pypi_simple import PyPISimple

TIMEOUT_S = 60
"""For the connection, and between two received bytes."""

# if a server asks for a longer pause, the request fails: a CI job must not idle, and a user can retry later
LONGEST_PAUSE_S = 60

SLOWEST_BYTES_S = 50_000
"""The least bytes a second of a transfer, which gets `DOWNLOAD_TIMEOUT_S` beside."""

MAX_BODY_BYTES = 1 << 26
"""An answer that is kept in memory, such as a page of an index."""

_BLOCK = 1 << 16
_T = TypeVar("_T")


class _BoundedRetry(Retry):
    """Honours Retry-After up to `LONGEST_PAUSE_S`."""

    def increment(self, *arguments: Any, **named: Any) -> _BoundedRetry:
        response = named.get("response")
        if response is not None and (self.get_retry_after(response) or 0) > LONGEST_PAUSE_S:
            reason = ResponseError(f"HTTP {response.status}, asks for a pause of more than {LONGEST_PAUSE_S} s")
            raise MaxRetryError(named["_pool"], str(response.url), reason)
        return super().increment(*arguments, **named)


RETRIES = _BoundedRetry(total=3, backoff_factor=0.25, status_forcelist=(429, 500, 502, 503, 504))
"""The retries of pip. urllib3 applies them only to idempotent methods."""


class _Session(requests.Session):
    """Limits the time of each exchange, and the size of an answer that is not streamed."""

    timeout: float | tuple[float, float]

    def request(self, *arguments: Any, **named: Any) -> requests.Response:
        with _request_errors():
            return super().request(*arguments, **named)

    def get_redirect_target(self, response: requests.Response) -> str | None:
        target = super().get_redirect_target(response)
        if target and urlsplit(response.url).scheme == "https" != urlsplit(urljoin(response.url, target)).scheme:
            raise requests.exceptions.InvalidSchema(f"redirected to {target}, which is not https")
        return target

    def send(self, request: requests.PreparedRequest, **named: Any) -> requests.Response:
        def exchange() -> requests.Response:
            response = super(_Session, self).send(request, **{**named, "timeout": self.timeout, "stream": True})
            if not named.get("stream"):
                body = bytearray()
                _copy(response, body.extend, MAX_BODY_BYTES)
                response._content = bytes(body)
            return response

        return _within(lambda: int(request.headers.get("Content-Length", 0)), exchange)


def save_body(response: requests.Response, path: Path, max_bytes: int) -> None:
    """Write a streamed answer to a file. Raises `requests.RequestException` if it is larger or too slow."""
    with path.open("wb") as file, _request_errors():
        _within(response.raw.tell, lambda: _copy(response, file.write, max_bytes))


@contextmanager
def _request_errors() -> Iterator[None]:
    """Turn what requests lets through into `requests.RequestException`: any header or address can be invalid."""
    try:
        yield
    except requests.RequestException:
        raise
    except (ValueError, HTTPError) as error:
        raise requests.RequestException(str(error)) from None


def require_ok(response: requests.Response) -> None:
    """Raise `requests.HTTPError` unless the status is 200: no other one promises the whole file."""
    if response.status_code != requests.codes.ok:
        raise requests.HTTPError(f"HTTP {response.status_code}", response=response)


def _within(size: Callable[[], int], call: Callable[[], _T]) -> _T:
    try:
        return call_within(lambda: DOWNLOAD_TIMEOUT_S + size() / SLOWEST_BYTES_S, call)
    except TimeoutError as error:
        raise requests.ReadTimeout(str(error)) from None


def _copy(response: requests.Response, write: Callable[[bytes], object], max_bytes: int) -> None:
    size = 0
    for block in response.iter_content(_BLOCK):
        size += len(block)
        if size > max_bytes:
            raise requests.exceptions.ContentDecodingError(f"more than {max_bytes} bytes")
        write(block)


def http_session(
    environ: Mapping[str, str] | None = None,
    *,
    timeout: float | tuple[float, float] = TIMEOUT_S,
    retries: Retry | int = RETRIES,
) -> requests.Session:
    """Create a session with timeouts and retries.

    ``PIP_CERT`` in `environ` names a CA bundle, as it does for pip. `timeout` is in seconds, or a pair of the seconds
    for the connection and between two received bytes.
    """
    session = _Session()
    session.timeout = timeout
    session.verify = (environ or {}).get("PIP_CERT") or True
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries))
    return session


@contextmanager
def open_package_index(url: str, environ: Mapping[str, str]) -> Iterator[PyPISimple]:
    """Open a package index, such as PyPI; ``PIP_CERT`` in `environ` names a CA bundle.

    Raises `requests.RequestException` if it cannot be reached, or what it sends in the block is not of an index.
    """
    # imported late: takes a quarter of a command's start
    from bs4 import ParserRejectedMarkup
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedRepoVersionError

    # ValueError: another content type, invalid JSON, or JSON of something else; the parsers recurse into JSON and HTML
    not_an_index = (NoSuchProjectError, UnsupportedRepoVersionError, ParserRejectedMarkup, ValueError, RecursionError)
    with PyPISimple(url, session=http_session(environ)) as client:
        try:
            yield client
        except requests.RequestException:
            raise
        except not_an_index as error:
            raise requests.RequestException(str(error) or type(error).__name__) from error


# the start of urllib3's messages about a connection: ``HTTPConnection(host='127.0.0.1', port=9)``
_CONNECTION = r"(?:\w+\([^)]*\)|<[^>]*>)"


def http_error_reason(error: Exception) -> str:
    """Return the message of the innermost wrapped error, on one line."""
    innermost = getattr(error.args[0] if error.args else None, "reason", None) or error
    line = str(innermost).partition("\n")[0]
    # without the password of an index and without URL queries, which hold the access key of a signed download
    return re.sub(rf"^{_CONNECTION}: |(?<=://)[^/\s]*@|\?\S*", "", line) or type(error).__name__


def next_page_url(response: requests.Response, home: str, template: FactoryError) -> str | None:
    """Find the next page of a list in the Link header (RFC 8288); None on the last page.

    Raises a copy of `template` if the next page is on another host than `home`.
    """
    link = response.links.get("next", {}).get("url")
    if link is None:
        return None
    url = link
    with suppress(ValueError):  # of an invalid address
        url = urljoin(response.url, link)
        # another host would receive our token
        if urlsplit(url)[:2] == urlsplit(home)[:2]:
            return url
    raise type(template)(template.what, f"{template.which}: {url}", template.hint)
