"""The HTTP session of everything that the factory asks over the network: retries, time limits, and how it fails.

The doctor has its own reader (`doctor/manifest_source.py`), which needs the standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import MaxRetryError, ResponseError
from urllib3.util import Retry

from wheelfactory.core.errors import FactoryError

TIMEOUT_S = 60
"""To connect, and between two bytes."""

LONGEST_PAUSE_S = 60
"""If a server asks for a longer pause, the call fails: a user can retry later, a job must not stand still."""


class _Patience(Retry):
    """Keeps the pauses that a server asks for with Retry-After, up to `LONGEST_PAUSE_S`."""

    def increment(self, *arguments: Any, **named: Any) -> _Patience:
        response = named.get("response")
        if response is not None and (self.get_retry_after(response) or 0) > LONGEST_PAUSE_S:
            reason = ResponseError(f"HTTP {response.status}, asks for a pause of more than {LONGEST_PAUSE_S} s")
            raise MaxRetryError(named["_pool"], str(response.url), reason)
        return super().increment(*arguments, **named)


RETRIES = _Patience(total=3, backoff_factor=0.25, status_forcelist=(429, 500, 502, 503, 504))
"""As pip asks again, of calls that change nothing."""


class _Adapter(HTTPAdapter):
    """Gives a call without a time limit that of the session: requests has none."""

    def __init__(self, timeout: float | tuple[float, float], retries: Retry | int) -> None:
        super().__init__(max_retries=retries)
        self._timeout = timeout

    def send(self, request: requests.PreparedRequest, *arguments: Any, **named: Any) -> requests.Response:
        named["timeout"] = named.get("timeout") or self._timeout
        return super().send(request, *arguments, **named)


def http_session(
    environ: Mapping[str, str] | None = None,
    *,
    timeout: float | tuple[float, float] = TIMEOUT_S,
    retries: Retry | int = RETRIES,
) -> requests.Session:
    """A session with time limits that asks again when a server is busy.

    ``PIP_CERT`` in `environ` names another list of authorities, as it does for pip. `timeout` is in seconds, or the
    seconds to connect and between two bytes; a call may have its own.
    """
    session = requests.Session()
    session.verify = (environ or {}).get("PIP_CERT") or True
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(timeout, retries))
    return session


_CONNECTION = r"(?:\w+\([^)]*\)|<[^>]*>)"
"""How urllib3 begins what it says of a connection: ``HTTPConnection(host='127.0.0.1', port=9)``."""


def http_error_reason(error: Exception) -> str:
    """What went wrong, in the words of the innermost of the errors that wrap each other, in one line.

    Queries of addresses are left out, because those of downloads are keys to them.
    """
    innermost = getattr(error.args[0] if error.args else None, "reason", None) or error
    line = str(innermost).partition("\n")[0]
    return re.sub(rf"^{_CONNECTION}: |\?\S*", "", line) or type(error).__name__


def next_page_url(answer: requests.Response, home: str, refusal: FactoryError) -> str | None:
    """Where a list goes on, as the Link header of an answer says (RFC 8288); None at its end.

    Raises an error of the type of `refusal` if that is another host than that of `home`: it would get our token.
    """
    link = answer.links.get("next", {}).get("url")
    if link is None:
        return None
    url = urljoin(answer.url, link)
    if urlsplit(url)[:2] != urlsplit(home)[:2]:
        raise type(refusal)(refusal.what, f"{refusal.which}: {url}", refusal.hint)
    return url
