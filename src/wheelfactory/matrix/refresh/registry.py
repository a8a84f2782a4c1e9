"""A container registry -> the tags of a repository, and the digest of a tag (Docker registry HTTP API v2, OCI
distribution specification). Reads only, without an account."""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from requests.utils import parse_dict_header
from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from wheelfactory.core.errors import FactoryError

DOCKER_HUB = "https://registry-1.docker.io"

MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
"""What `docker pull` accepts: an index of several platforms is what its digest then names, else the one manifest."""

LONGEST_WAIT_S = 60.0
"""A registry that wants a longer pause is asked again by whoever runs this, not by a job that stands still."""

_TIMEOUT_S = 60
_TRIES = 4
_PAGE, _MOST_PAGES = 1000, 100
_MOST_BYTES = 8 << 20
"""Of one answer: the specification asks for manifests of up to 4 MiB, a page of tags has about 100 kB."""
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_HINT = "check the network; nothing was changed"


@dataclass(frozen=True)
class _Answer:
    """One answer, read to its end."""

    status: int
    headers: CaseInsensitiveDict[str]
    body: bytes
    next_page: str | None


class Registry:
    """A registry at a URL. What it cannot give, for any reason, is a `FactoryError`; that a tag is gone is not."""

    def __init__(self, url: str = DOCKER_HUB) -> None:
        self._url = url.rstrip("/")
        self._tokens: dict[str, str] = {}
        self._session = requests.Session()
        # 429 is waited for here: urllib3 would sleep for whatever the server says
        retries = Retry(total=2, backoff_factor=0.25, status_forcelist=(500, 502, 503, 504), status=2)
        retries.respect_retry_after_header = False
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retries))

    def tags(self, repository: str) -> list[str]:
        """All tags of a repository, page by page."""
        url: str | None = f"{self._url}/v2/{repository}/tags/list?n={_PAGE}"
        found: list[str] = []
        for _ in range(_MOST_PAGES):
            answer = self._ask("GET", str(url), repository)
            if answer.status == requests.codes.not_found:
                raise FactoryError("the registry does not have", repository, "check its name; nothing was changed")
            found += self._names(answer, repository)
            url = answer.next_page
            if url is None:
                return found
        raise FactoryError("the registry lists tags without end", repository, _HINT)

    def digest(self, repository: str, tag: str) -> str | None:
        """``sha256:...`` of what a tag names now, or None if there is no such tag.

        Asked with HEAD, which Docker Hub does not count as a pull; where that tells no digest, the manifest is
        fetched and its bytes are what counts.
        """
        url = f"{self._url}/v2/{repository}/manifests/{quote(tag, safe='')}"
        answer = self._ask("HEAD", url, repository)
        stated = answer.headers.get("Docker-Content-Digest")
        if answer.status != requests.codes.not_found and stated is None:
            answer = self._ask("GET", url, repository)
            stated = answer.headers.get("Docker-Content-Digest")
            computed = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
            if stated not in (None, computed):
                raise FactoryError("not what its digest says", f"{repository}:{tag} is {computed}, not {stated}", _HINT)
            stated = computed
        if answer.status == requests.codes.not_found:
            return None
        if not _DIGEST.fullmatch(stated or ""):
            raise FactoryError("not a sha256 digest", f"{stated!r} for {repository}:{tag}", _HINT)
        return stated

    @staticmethod
    def _names(answer: _Answer, repository: str) -> list[str]:
        listed = _json(answer.body, repository).get("tags") or []
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise FactoryError("not a list of tags", f"of {repository}", _HINT)
        return listed

    def _ask(self, method: str, url: str, repository: str) -> _Answer:
        """The answer to a request: 200 or 404, after a token was fetched and pauses were kept as asked for."""
        renewed = False
        for tries in range(1, _TRIES + 1):
            token = self._tokens.get(repository)
            answer = self._send(method, url, {"Authorization": f"Bearer {token}"} if token else {})
            if answer.status == requests.codes.unauthorized and not renewed:
                self._tokens[repository], renewed = self._token(answer, repository), True
            elif answer.status == requests.codes.too_many_requests and tries < _TRIES:
                time.sleep(_pause(answer, url))
            elif answer.status in (requests.codes.ok, requests.codes.not_found):
                return answer
            else:
                break
        raise FactoryError("the registry refuses", f"{method} {url}: HTTP {answer.status}", _HINT)

    def _token(self, answer: _Answer, repository: str) -> str:
        """A token for anyone, from where the registry's challenge says (Docker registry token authentication)."""
        scheme, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
        challenge: dict[str, str] = parse_dict_header(rest)  # type: ignore[no-untyped-call]  # its stubs lack types
        if scheme.lower() != "bearer" or not challenge.get("realm"):
            raise FactoryError("the registry wants a login", repository, "name a registry that anyone can read")
        asked = {key: challenge[key] for key in ("service", "scope") if challenge.get(key)}
        url = str(requests.Request("GET", challenge["realm"], params=asked).prepare().url)
        granted = self._send("GET", url, {})
        found = _json(granted.body, url) if granted.status == requests.codes.ok else {}
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str):
            raise FactoryError("the registry gives no token", f"{url}: HTTP {granted.status}", _HINT)
        return token

    def _send(self, method: str, url: str, headers: dict[str, str]) -> _Answer:
        asked = {"Accept": MANIFESTS if "/manifests/" in url else "application/json", **headers}
        try:
            with self._session.request(method, url, headers=asked, timeout=_TIMEOUT_S, stream=True) as response:
                body = b""
                for chunk in response.iter_content(1 << 16):
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise FactoryError("too long an answer", url, _HINT)
                return _Answer(response.status_code, response.headers, body, _next_page(response, self._url))
        except (requests.RequestException, UnicodeError) as error:
            reason = str(error).partition("\n")[0]
            raise FactoryError("cannot reach the registry", f"{url}: {reason}", _HINT) from error


def _next_page(response: requests.Response, registry: str) -> str | None:
    """Where the list goes on, as the Link header says. Raises `FactoryError` if that is another host."""
    link = response.links.get("next", {}).get("url")
    if link is None:
        return None
    url = urljoin(response.url, link)
    if urlsplit(url)[:2] != urlsplit(registry)[:2]:
        raise FactoryError("the list of tags goes on elsewhere", url, _HINT)
    return url


def _pause(answer: _Answer, url: str) -> float:
    """The seconds that a busy registry asks for. Raises `FactoryError` if those are too many."""
    try:
        asked = Retry().parse_retry_after(answer.headers.get("Retry-After", "1"))
    except InvalidHeader:
        asked = 1.0
    if asked > LONGEST_WAIT_S:
        raise FactoryError(
            "the registry is busy", f"{url}: wants a pause of {asked:.0f} s", "run this later; nothing was changed"
        )
    return asked


def _json(body: bytes, which: str) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FactoryError("not what a registry answers", which, "check the URL of the registry; nothing was changed")
    return found
