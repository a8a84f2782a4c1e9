"""GitHub's REST API over HTTP: one call with its limits and waits, pages, downloads; the token stays with GitHub.

A call that changes something is never sent again blindly: see `Client.change`.
"""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.http import http_error_reason, http_session, next_page_url
from wheelfactory.core.progress import ProgressPart, ignore_progress, logger
from wheelfactory.release.github.responses import RetryableError, check_response
from wheelfactory.release.transaction import Asset

API_URL = "https://api.github.com"

_VERSION = "2022-11-28"
"""Of the REST API; GitHub keeps a version for at least two years after the next one (its documentation)."""
_TIMEOUTS_S = (30, 300)
"""To connect, and between two bytes; GitHub answers an upload only when it has stored all of it."""
_TRIES = 8
"""Of one call; the pauses between them double from 1 s where GitHub asks for none."""
_MOST_WAITING_S = 3 * 3600.0
"""Of one command, all pauses together. A job may take 6 h, and a used-up rate limit comes back within one hour."""
_PAGE, _MOST_PAGES = 100, 100
"""GitHub gives at most 100 entries a page, and 10,000 releases."""
_BLOCK = 1 << 20

_T = TypeVar("_T")


@dataclass(frozen=True)
class ApiCall:
    """A call that changes something: what is sent, and what `--dry-run` shows of it."""

    method: str
    url: str
    body: Mapping[str, object] | None = None
    file: Asset | None = None
    """What is uploaded; its name goes into the query, where ``+`` must be ``%2B``."""

    def __str__(self) -> str:
        if self.file:
            return f"{self.method} {self.url}?{urlencode({'name': self.file.name})}  {self.file.size} bytes"
        told = {name: value for name, value in (self.body or {}).items() if name != "body"}
        return " ".join((self.method, self.url, *(f" {name}={value}" for name, value in told.items())))


class Client:
    """One repository at an API address. Raises `PublishError` for whatever GitHub refuses or cannot do in time."""

    def __init__(
        self,
        api: str,
        repository: str,
        token: str | None,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`repository` is ``OWNER/REPO``, `clock` gives seconds since 1970.

        Raises `InputError` for an address or a token that cannot be used.
        """
        self.repository = repository
        self.url = f"{_safe(api)}/repos/{repository}"
        self._token = _usable(token)
        self._clock, self._sleep, self._left = clock, sleep, _MOST_WAITING_S
        # no retries of its own: each call is judged and made again by `change`
        self._session = http_session(timeout=_TIMEOUTS_S, retries=0)
        self._session.auth = self._authorize  # also keeps requests from taking a password of ~/.netrc
        self._session.headers.update({"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": _VERSION})

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def get(self, url: str) -> Any:
        """The JSON at an address of the API."""
        return self._get(url)[0]

    def list_entries(self, url: str) -> Iterator[Any]:
        """The entries of a list, page by page, as its Link headers lead."""
        following: str | None = f"{url}?per_page={_PAGE}"
        for _ in range(_MOST_PAGES):
            entries, answer = self._get(str(following))
            yield from entries
            elsewhere = PublishError("GitHub's list goes on elsewhere", url, "check GITHUB_API_URL")
            following = next_page_url(answer, self.url, elsewhere)
            if following is None:
                return
        raise PublishError("GitHub lists without end", url, "run the same command again")

    def download(self, url: str, path: Path) -> None:
        """The content of an asset, by its address in the API, into a file. Another host gets no token."""

        def attempt() -> bool:
            headers = {"Accept": "application/octet-stream"}
            with self._exchange("GET", url, stream=True, headers=headers) as answer, _wire(url):
                if answer.is_redirect:
                    self._store(urljoin(url, answer.headers["Location"]), path)
                else:
                    _write(answer, path)
            return True

        self.retry(attempt, lambda: None)

    def _store(self, url: str, path: Path) -> None:
        """From where GitHub sends for a download, without the session and so without its token."""
        _keeps_https(self.url, url)
        session = http_session(timeout=_TIMEOUTS_S, retries=0)
        session.auth = lambda request: request  # an auth of one's own keeps requests from looking into ~/.netrc
        with session, _wire(url), session.get(url, stream=True) as answer:
            check_response(answer, f"GET {_bare(url)}", self._clock())
            _write(answer, path)

    def send(self, call: ApiCall, part: ProgressPart = ignore_progress) -> Any:
        """Make one call that changes something, once, and give the JSON of its answer (None if it has none).

        Raises `RetryableError` if it is not known whether it was done, or if it should be made again after a pause,
        and `RefusedError` (a `PublishError`) if it was not done and will not be. `part` is told of the bytes sent.
        """
        if self._token is None:
            raise PublishError("no token", "GITHUB_TOKEN is not set", "set it to one with `contents: write`")
        if call.file is None:
            answer = self._exchange(call.method, call.url, json=call.body)
        else:
            _keeps_https(self.url, call.url)
            headers, params = {"Content-Type": "application/octet-stream"}, {"name": call.file.name}
            content = call.file.content
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                body = _Body(file, call.file.size, part)
                answer = self._exchange(call.method, call.url, params=params, data=body, headers=headers)
        return _json(answer) if answer.content else None

    def retry(self, attempt: Callable[[], _T], found: Callable[[], _T | None]) -> _T:
        """Make a change that GitHub may have made although no answer came.

        After an `attempt` without an answer, `found` looks what is there: what it finds counts as the answer, and
        only if that is None the attempt is made again, after the pause that GitHub asks for.
        """
        for tries in itertools.count(1):
            try:
                return attempt()
            except RetryableError as trouble:
                pause = trouble.delay(tries)
                if tries == _TRIES or pause > self._left:
                    why = f"after {tries} tries" if tries == _TRIES else f"wants a pause of {pause:.0f} s"
                    hint = "run the same command again later: what was uploaded is kept"
                    raise PublishError("GitHub does not answer", f"{trouble} ({why})", hint) from trouble
                logger.info("GitHub: %s; waiting %.0f s", trouble, pause)
                self._left -= pause
                self._sleep(pause)
            there = found()
            if there is not None:
                return there
        raise AssertionError("waiting ends in an error")

    def _get(self, url: str) -> tuple[Any, requests.Response]:
        def attempt() -> tuple[Any, requests.Response]:
            answer = self._exchange("GET", url)
            return _json(answer), answer

        return self.retry(attempt, lambda: None)

    def _exchange(self, method: str, url: str, **options: Any) -> requests.Response:
        """One answer that is a success, or the redirect of a download.

        No redirect is followed: it would turn a POST into a GET, and is how a moved repository answers.
        """
        with _wire(url):
            answer = self._session.request(method, url, allow_redirects=False, **options)
            if not (options.get("stream") and answer.is_redirect):
                check_response(answer, f"{method} {_bare(url)}", self._clock())
            return answer


class _Body:
    """The bytes of an asset as they are sent: read from the file piece by piece, and counted."""

    def __init__(self, file: BinaryIO, size: int, part: ProgressPart) -> None:
        self._file, self._size, self._part, self._done = file, size, part, 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        """Unused, but only what can be iterated is sent as a stream by requests."""
        return iter(lambda: self.read(_BLOCK), b"")

    def read(self, size: int) -> bytes:
        """The next bytes."""
        block = self._file.read(size)
        self._done += len(block)
        self._part(self._done, self._size)
        return block


@contextmanager
def _wire(url: str) -> Iterator[None]:
    """Tell of what goes wrong on the way as `RetryableError`, without queries: those of downloads are keys to them."""
    try:
        yield
    except requests.RequestException as error:
        raise RetryableError(f"{_bare(url)}: {http_error_reason(error)}") from None


def _json(answer: requests.Response) -> Any:
    with _wire(answer.url):
        return answer.json()  # one that was cut off is as good as none


def _write(answer: requests.Response, path: Path) -> None:
    with path.open("wb") as file:
        for block in answer.iter_content(_BLOCK):
            file.write(block)


def _bare(url: str) -> str:
    return url.partition("?")[0]


def _safe(api: str) -> str:
    """The address of the API; only this machine may have one without TLS, since the token is sent there."""
    parts = urlsplit(api)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")):
        return api.rstrip("/")
    raise InputError("not an address for a token", api, "GITHUB_API_URL begins with https://")


def _keeps_https(api: str, url: str) -> None:
    if urlsplit(api).scheme == "https" != urlsplit(url).scheme:
        raise PublishError("GitHub sends to an address without TLS", _bare(url), "check GITHUB_API_URL")


def _usable(token: str | None) -> str | None:
    """The token; checked here because requests would show it in its complaint of a header that cannot be sent."""
    token = (token or "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InputError("not a token", "GITHUB_TOKEN holds more than one", "set it again, without blanks or lines")
    return token or None
