"""Classify responses of GitHub's REST API: success, retry after a delay, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import requests

from wheelfactory.core.errors import PublishError
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.strict import parse_json

# without a Retry-After header: at least one minute, then longer each time (GitHub's rate limit documentation)
_FIRST_SECONDARY_PAUSE_S = 60.0
_T = TypeVar("_T")
_Model = TypeVar("_Model", bound=FrozenModel)
_RUN_AGAIN = "run the same command again; uploaded files are kept"
_REFUSALS = {
    requests.codes.unauthorized: (
        "GitHub does not accept the token",
        f"set GITHUB_TOKEN to a valid token (a job's token expires with the job); {_RUN_AGAIN}",
    ),
    requests.codes.forbidden: ("the token lacks a permission", "it needs `contents: write` of this repository"),
    requests.codes.not_found: (
        "not found on GitHub",
        "check OWNER/REPO and the permissions of GITHUB_TOKEN: GitHub reports what a token cannot see as missing",
    ),
}
"""What is wrong, and what to do, by HTTP status."""
_MOVED = ("GitHub redirects the request", "the repository was moved: use its new name")
_REFUSED = ("GitHub refused the request", f"fix this, then {_RUN_AGAIN}")


class RetryableError(Exception):
    """A request that may be retried: its outcome is unknown, or GitHub asked to wait.

    `pause` is the delay in seconds that GitHub asked for. Without one, the first delay is `first` seconds, and each
    further delay is twice as long. `is_unreachable` says that the connection failed.
    """

    def __init__(
        self, reason: str, pause: float | None = None, first: float = 1.0, *, is_unreachable: bool = False
    ) -> None:
        super().__init__(reason)
        self._pause, self._first = pause, first
        self.is_unreachable = is_unreachable

    def delay(self, tries: int) -> float:
        """Seconds to wait after this number of tries."""
        return self._first * 2.0 ** (tries - 1) if self._pause is None else self._pause


class RefusedError(PublishError):
    """A request that GitHub refused, and would refuse again. `status` is the HTTP status."""

    def __init__(self, status: int, what: str, which: str, hint: str) -> None:
        super().__init__(what, which, hint)
        self.status = status


def none_if_missing(call: Callable[[], _T]) -> _T | None:
    """The result of a call; None if GitHub responds 404."""
    try:
        return call()
    except RefusedError as refused:
        if refused.status == requests.codes.not_found:
            return None
        raise


def read_response(kind: type[_Model], data: object, which: str) -> _Model:
    """Read the JSON of a response; `which` names the request. Raises `PublishError` if it is something else."""
    return parse_model(kind, data, PublishError("unexpected response from GitHub", which, "check GITHUB_API_URL"))


class _Problem(FrozenModel, extra="ignore"):
    """One of the errors of a refusal."""

    field: str | None = None
    message: str | None = None
    code: str | None = None


class _Refusal(FrozenModel, extra="ignore"):
    """GitHub's JSON of a refusal."""

    message: str = ""
    errors: tuple[_Problem | str, ...] | None = None


def check_response(answer: requests.Response, call: str, now: float) -> None:
    """Return if the response is a success. `call` names the request in errors, `now` is in seconds since 1970.

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
    what, hint = _REFUSALS.get(status, _MOVED if status < requests.codes.bad_request else _REFUSED)
    if status == requests.codes.forbidden and "Authorization" not in answer.request.headers:
        what, hint = "GitHub refuses a request without a token", f"set GITHUB_TOKEN, then {_RUN_AGAIN}"
    raise RefusedError(status, what, f"{call}: HTTP {status}" + (f", {message}" if message else ""), hint)


def is_rate_limit(status: int, headers: Mapping[str, str], message: str) -> bool:
    """Whether a 403 or 429 is a rate limit (GitHub's rate limit documentation)."""
    if status == requests.codes.forbidden:
        limited = "Retry-After" in headers or headers.get("x-ratelimit-remaining") == "0"
        return limited or "rate limit" in message.lower()
    return bool(status == requests.codes.too_many_requests)


def find_retry_delay(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait: Retry-After, or until x-ratelimit-reset if nothing remains; None if neither is given.

    `now` is in seconds since 1970.
    """
    after, reset = headers.get("Retry-After", ""), headers.get("x-ratelimit-reset", "")
    if after.isdecimal():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(0.0, float(reset) - now) + 1  # one second more: the clocks of two machines differ
    return None


def _message(answer: requests.Response) -> str:
    """GitHub's message and the codes of its errors, on one line; empty without JSON."""
    try:
        found = _Refusal.model_validate(parse_json(answer.content))
    except ValueError:
        return ""
    problems = [error for error in found.errors or () if isinstance(error, _Problem)]
    parts = [f"{problem.field or ''} {problem.message or problem.code or ''}".strip() for problem in problems]
    return " ".join("; ".join([found.message, *parts]).split())[:300]
