"""Call GitHub's REST API: single requests with retries, paged lists, downloads. Only GitHub's host gets the token.

A request that changes something is never repeated blindly: see `Client.retry`.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.http import http_error_reason, http_session, next_page_url, save_body
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.progress import ProgressCallback, ignore_progress, logger
from wheelfactory.core.strict import parse_json
from wheelfactory.release.github.responses import RefusedError, RetryableError, check_response, read_response
from wheelfactory.release.transaction import Asset

API_URL = "https://api.github.com"

# the REST API version. GitHub supports it for at least two years after the next version (its documentation)
_VERSION = "2022-11-28"
# seconds to connect, and between two bytes; the latter because GitHub responds to an upload after storing it
_TIMEOUTS_S = (30, 300)
# tries of one request. The delays between them double from 1 s unless GitHub asks for a delay
_TRIES = 8
# tries to connect before GitHub ever responded: 7 s of delays outlast a short failure of the network, and a wrong
# address or a missing network is reported in seconds
_FIRST_TRIES = 4
# delays between readings of a list that is older than a change that GitHub acknowledged. Such lists are reported to be
# seconds old (cli/cli#6599, octokit/octokit.js#2909); 63 s in all leave a margin, and a job can afford them
_LAG_PAUSES_S = (1, 2, 4, 8, 16, 32)
# limit for all delays of one command. A job can run for 6 h, and an exhausted rate limit resets within 1 h
_MOST_WAITING_S = 3 * 3600.0
CREATIONS = ((60, 80), (3600, 500))
"""Seconds, and requests within them that may create content (GitHub's documentation of rate limits)."""
_PAGE, _MOST_PAGES = 100, 100
"""GitHub gives at most 100 entries a page, and 10,000 releases."""
_MOST_BYTES = 1 << 31
"""Bytes of an asset; GitHub refuses more."""

_T = TypeVar("_T")
_Model = TypeVar("_Model", bound=FrozenModel)


@dataclass(frozen=True)
class ApiCall:
    """A request that changes something. Its text is what `--dry-run` shows."""

    method: str
    url: str
    body: Mapping[str, object] | None = None
    file: Asset | None = None
    """The file to upload. Its name goes into the query, where ``+`` must be ``%2B``."""

    def __str__(self) -> str:
        if self.file:
            return f"{self.method} {self.url}?{urlencode({'name': self.file.name})}  {self.file.size} bytes"
        shown = {name: value for name, value in (self.body or {}).items() if name != "body"}
        return " ".join((self.method, self.url, *(f" {name}={value}" for name, value in shown.items())))


class Client:
    """One repository at an API address. Methods raise `PublishError` if GitHub refuses or stays unreachable."""

    def __init__(
        self,
        api: str,
        repository: str,
        token: str | None,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`repository` is ``OWNER/REPO``, `clock` returns seconds since 1970.

        Raises `InputError` for an invalid address or token.
        """
        self.repository = repository
        self.url = f"{_require_tls(api)}/repos/{repository}"
        self._token = _checked_token(token)
        self._clock, self._sleep, self._left = clock, sleep, _MOST_WAITING_S
        self._has_responded = False
        self._created: list[float] = []
        # no retries in the session: each request is classified and retried by `retry`
        self._session = http_session(timeout=_TIMEOUTS_S, retries=0)
        self._session.auth = self._authorize  # setting auth also keeps requests from reading passwords in ~/.netrc
        self._session.headers.update({"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": _VERSION})

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def get(self, url: str, kind: type[_Model]) -> _Model:
        """The JSON at an API address."""
        return read_response(kind, self._get(url)[0], url)

    def list_entries(self, url: str, kind: type[_Model], name: str = "") -> Iterator[_Model]:
        """All entries of a list, or of the list `name` in an object, following its Link headers."""
        following: str | None = f"{url}{'&' if '?' in url else '?'}per_page={_PAGE}"
        for _ in range(_MOST_PAGES):
            entries, answer = self._get(str(following))
            if name:
                entries = entries.get(name) if isinstance(entries, dict) else None
            if not isinstance(entries, list):
                raise PublishError("unexpected response from GitHub", f"{url}: not a list", "check GITHUB_API_URL")
            yield from (read_response(kind, entry, url) for entry in entries)
            elsewhere = PublishError("GitHub's list continues on another host", url, "check GITHUB_API_URL")
            following = next_page_url(answer, self.url, elsewhere)
            if following is None:
                return
        raise PublishError("GitHub's list has too many pages", url, "run the same command again")

    def download(self, url: str, path: Path, public_url: str = "") -> None:
        """Download an asset, by its API address, to `path`. A redirect to another host gets no token.

        A `public_url` is tried first: it is no call of the API, and GitHub refuses it in private repositories.
        """

        def attempt() -> None:
            if public_url:
                with suppress(RefusedError):
                    self._store(public_url, path)
                    return
            headers = {"Accept": "application/octet-stream"}
            with self._exchange("GET", url, stream=True, headers=headers) as answer, _wire(url):
                if answer.is_redirect:
                    self._store(urljoin(url, answer.headers["Location"]), path)
                else:
                    save_body(answer, path, _MOST_BYTES)

        self.retry(attempt)

    def _store(self, url: str, path: Path) -> None:
        """Download from another host than the API's, in a new session without the token."""
        _require_same_tls(self.url, url)
        session = http_session(timeout=_TIMEOUTS_S, retries=0)
        session.auth = lambda request: request  # an auth that does nothing keeps requests from reading ~/.netrc
        with session, _wire(url), session.get(url, stream=True) as answer:
            check_response(answer, f"GET {_without_query(url)}", self._clock())
            save_body(answer, path, _MOST_BYTES)

    def send(self, call: ApiCall, report_progress: ProgressCallback = ignore_progress) -> Any:
        """Send one request that changes something, once; return the JSON of the response, or None if it is empty.

        `report_progress` receives the bytes sent. Raises `RetryableError` if the outcome is unknown or GitHub asks to
        wait, and `RefusedError` if GitHub refused.
        """
        if self._token is None:
            raise PublishError("no token", "GITHUB_TOKEN is not set", "set it to a token with `contents: write`")
        if call.method == "POST":
            self._wait_to_create()
        if call.file is None:
            answer = self._exchange(call.method, call.url, json=call.body)
        else:
            _require_same_tls(self.url, call.url)
            headers, params = {"Content-Type": "application/octet-stream"}, {"name": call.file.name}
            content = call.file.content
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                body = _Body(file, call.file.size, report_progress)
                answer = self._exchange(call.method, call.url, params=params, data=body, headers=headers)
        return _json(answer) if answer.content else None

    def _wait_to_create(self) -> None:
        """Wait until one more request of this process that creates something keeps to `CREATIONS`."""
        for seconds, most in CREATIONS:
            pause = self._created[-most] + seconds - self._clock() if len(self._created) >= most else 0
            if pause > 0:
                logger.info("GitHub: %d uploads within %d s are its limit; waiting %.0f s", most, seconds, pause)
                self._sleep(pause)
        self._created.append(self._clock())

    def retry(self, attempt: Callable[[], _T], find_result: Callable[[], _T | None] = lambda: None) -> _T:
        """Try `attempt` until it succeeds, without repeating a change that GitHub made before its response was lost.

        After each try without a response, `find_result` looks for the result. Only if it returns None, `attempt` is
        repeated. Raises `PublishError` when the tries or the waiting time are used up, and after fewer tries if GitHub
        cannot be connected to and never responded.
        """
        tries = 0
        while True:
            tries += 1
            try:
                return attempt()
            except RetryableError as error:
                pause = error.delay(tries)
                if error.is_unreachable and not self._has_responded and tries == _FIRST_TRIES:
                    hint = "check the network and GITHUB_API_URL, then run the same command again"
                    raise PublishError("GitHub is unreachable", f"{error} (after {tries} tries)", hint) from error
                if tries == _TRIES or pause > self._left:
                    why = f"after {tries} tries" if tries == _TRIES else f"GitHub asks to wait {pause:.0f} s"
                    hint = "run the same command again later; uploaded files are kept"
                    raise PublishError("GitHub does not respond", f"{error} ({why})", hint) from error
                logger.info("GitHub: %s; waiting %.0f s", error, pause)
                self._left -= pause
                self._sleep(pause)
            result = find_result()
            if result is not None:
                return result

    def poll(self, read: Callable[[], _T], is_current: Callable[[_T], bool]) -> _T:
        """Read until the result is current, for about a minute; return the last result."""
        found = read()
        for pause in _LAG_PAUSES_S:
            if is_current(found):
                break
            logger.info("GitHub: a list does not show the latest changes yet; waiting %d s", pause)
            self._sleep(pause)
            found = read()
        return found

    def _get(self, url: str) -> tuple[Any, requests.Response]:
        def attempt() -> tuple[Any, requests.Response]:
            answer = self._exchange("GET", url)
            return _json(answer), answer

        return self.retry(attempt)

    def _exchange(self, method: str, url: str, **options: Any) -> requests.Response:
        """Send one request; return its successful response, or the redirect of a download."""
        with _wire(url):
            # a followed redirect would turn a POST into a GET; a moved repository redirects
            answer = self._session.request(method, url, allow_redirects=False, **options)
            self._has_responded = True
            if not (options.get("stream") and answer.is_redirect):
                check_response(answer, f"{method} {_without_query(url)}", self._clock())
            return answer


class _Body:
    """An upload body that reads the file block by block and reports progress."""

    def __init__(self, file: BinaryIO, size: int, report_progress: ProgressCallback) -> None:
        self._file, self._size, self._report_progress = file, size, report_progress

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        while block := self._file.read(1 << 20):
            yield block
            self._report_progress(self._file.tell(), self._size)


@contextmanager
def _wire(url: str) -> Iterator[None]:
    """Turn network errors into `RetryableError`."""
    # without the query of the URL, which is a secret in download URLs
    try:
        yield
    except requests.RequestException as error:
        reason = f"{_without_query(url)}: {http_error_reason(error)}"
        raise RetryableError(reason, is_unreachable=isinstance(error, requests.ConnectionError)) from None


def _json(answer: requests.Response) -> Any:
    try:
        return parse_json(answer.content)
    except ValueError as error:  # a truncated body counts as no response
        raise RetryableError(f"{_without_query(answer.url)}: not JSON: {error}") from None


def _without_query(url: str) -> str:
    return url.partition("?")[0]


def _require_tls(api: str) -> str:
    """Return the API URL. Raises `InputError` if it has no TLS, except on this machine: the token is sent there."""
    parts = urlsplit(api)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")):
        return api.rstrip("/")
    raise InputError("the API address is not secure", api, "GITHUB_API_URL must begin with https://")


def _require_same_tls(api: str, url: str) -> None:
    if urlsplit(api).scheme == "https" != urlsplit(url).scheme:
        raise PublishError("GitHub redirects to an address without TLS", _without_query(url), "check GITHUB_API_URL")


def _checked_token(token: str | None) -> str | None:
    """Return the token without surrounding blanks; None if empty. Raises `InputError` if it cannot be a header."""
    token = (token or "").strip()
    # checked here because the error of requests would show the token
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InputError("not a token", "GITHUB_TOKEN has blanks, line ends or other characters", "set the token alone")
    return token or None
