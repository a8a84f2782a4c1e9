"""An answer of GitHub's REST API -> what it means: done, not known, to be asked again after a pause, or refused."""

from __future__ import annotations

from collections.abc import Mapping

import requests

from wheelfactory.core.errors import PublishError

_FIRST_SECONDARY_PAUSE_S = 60.0
"""GitHub's documentation of rate limits: without a Retry-After header at least one minute, then longer each time."""
_LONGEST_MESSAGE = 300
_RUN_AGAIN = "run the same command again: what was uploaded is kept"


class RetryableError(Exception):
    """It is not known whether GitHub did what it was asked, or it asks to come again.

    `pause` is how long it wants one to wait, in seconds; where it does not say, the first pause is `first`, and each
    further one twice as long.
    """

    def __init__(self, reason: str, pause: float | None = None, first: float = 1.0) -> None:
        super().__init__(reason)
        self._pause, self._first = pause, first

    def delay(self, tries: int) -> float:
        """The seconds to wait after so many tries."""
        return self._first * 2.0 ** (tries - 1) if self._pause is None else self._pause


class RefusedError(PublishError):
    """GitHub says no, and will say so again; `status` is the HTTP status."""

    def __init__(self, status: int, what: str, which: str, hint: str) -> None:
        super().__init__(what, which, hint)
        self.status = status


def check_response(answer: requests.Response, call: str, now: float) -> None:
    """Return if the answer is a success; `call` names what was asked, `now` is in seconds since 1970.

    Raises `RetryableError` or `RefusedError`.
    """
    status = answer.status_code
    if status < requests.codes.multiple_choices:
        return
    if status >= requests.codes.server_error:
        raise RetryableError(f"{call}: HTTP {status}")
    message = _message(answer)
    if is_rate_limit(status, answer.headers, message):
        pause = find_retry_delay(answer.headers, now)
        raise RetryableError(f"{call}: HTTP {status}, {message or 'rate limit'}", pause, _FIRST_SECONDARY_PAUSE_S)
    raise _refusal(status, call, message)


def is_rate_limit(status: int, headers: Mapping[str, str], message: str) -> bool:
    """Whether a refusal only means that there were too many calls (GitHub's documentation of rate limits)."""
    if status == requests.codes.forbidden:
        limited = "Retry-After" in headers or headers.get("x-ratelimit-remaining") == "0"
        return limited or "rate limit" in message.lower()
    return bool(status == requests.codes.too_many_requests)


def find_retry_delay(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a rate limit says to wait: Retry-After, or until x-ratelimit-reset if nothing remains; or None.

    `now` is in seconds since 1970.
    """
    after, reset = headers.get("Retry-After", ""), headers.get("x-ratelimit-reset", "")
    if after.isdecimal():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(0.0, float(reset) - now) + 1  # the clocks of two machines differ
    return None


def _message(answer: requests.Response) -> str:
    """What GitHub says of the refusal, with the codes of its parts, in one line."""
    try:
        found = answer.json()
    except requests.RequestException:
        return ""
    if not isinstance(found, dict):
        return ""
    errors = [error for error in found.get("errors") or () if isinstance(error, dict)]
    parts = [f"{error.get('field', '')} {error.get('message') or error.get('code', '')}".strip() for error in errors]
    return " ".join("; ".join([str(found.get("message", "")), *parts]).split())[:_LONGEST_MESSAGE]


def _refusal(status: int, call: str, message: str) -> RefusedError:
    told = f"{call}: HTTP {status}" + (f", {message}" if message else "")
    if status == requests.codes.unauthorized:
        hint = f"set GITHUB_TOKEN to one that has not expired (a job's ends with the job); {_RUN_AGAIN}"
        return RefusedError(status, "GitHub does not accept the token", told, hint)
    if status == requests.codes.forbidden:
        return RefusedError(status, "the token may not do this", told, "it needs `contents: write` of this repository")
    if status == requests.codes.not_found:
        hint = "check OWNER/REPO, and that GITHUB_TOKEN may write its contents: GitHub hides what a token may not see"
        return RefusedError(status, "GitHub does not find", told, hint)
    if status < requests.codes.bad_request:
        return RefusedError(status, "GitHub sends elsewhere", told, "the repository was moved: use its new name")
    return RefusedError(status, "GitHub refuses", told, f"when that is mended, {_RUN_AGAIN}")
