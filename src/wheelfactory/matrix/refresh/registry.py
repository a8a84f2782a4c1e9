"""A container registry -> the tags of a repository, and the digest of a tag (Docker registry HTTP API v2, OCI
distribution specification). Reads only, without an account."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

import requests
from requests.utils import parse_dict_header

from wheelfactory.core.digest import SHA256
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.http import http_error_reason, http_session, next_page_url
from wheelfactory.core.models import FrozenModel, parse_model

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

_PAGE, _MOST_PAGES = 1000, 100
_MOST_BYTES = 8 << 20
"""Of one answer: the specification asks for manifests of up to 4 MiB, a page of tags has about 100 kB."""
_HINT = "check the network; nothing was changed"


class _Page(FrozenModel, extra="ignore"):
    """A part of the list of tags."""

    tags: tuple[str, ...] | None = None


class _Grant(FrozenModel, extra="ignore"):
    """A token; one of both names is used."""

    token: str | None = None
    access_token: str | None = None


class Registry:
    """A registry at a URL. What it cannot give, for any reason, is a `FactoryError`; that a tag is gone is not."""

    def __init__(self, url: str = DOCKER_HUB) -> None:
        self._url = url.rstrip("/")
        self._tokens: dict[str, str] = {}
        self._session = http_session()

    def tags(self, repository: str) -> list[str]:
        """All tags of a repository, page by page."""
        url: str | None = f"{self._url}/v2/{repository}/tags/list?n={_PAGE}"
        found: list[str] = []
        for _ in range(_MOST_PAGES):
            answer, body = self._ask("GET", str(url), repository)
            if answer.status_code == requests.codes.not_found:
                raise FactoryError("the registry does not have", repository, "check its name; nothing was changed")
            hint = "check the URL of the registry; nothing was changed"
            found += parse_model(_Page, body, FactoryError("not what a registry answers", repository, hint)).tags or ()
            url = next_page_url(
                answer, self._url, FactoryError("the list of tags goes on elsewhere", repository, _HINT)
            )
            if url is None:
                return found
        raise FactoryError("the registry lists tags without end", repository, _HINT)

    def digest(self, repository: str, tag: str) -> str | None:
        """``sha256:...`` of what a tag names now, or None if there is no such tag.

        Asked with HEAD, which Docker Hub does not count as a pull; where that tells no digest, the manifest is
        fetched and its bytes are what counts.
        """
        url = f"{self._url}/v2/{repository}/manifests/{quote(tag, safe='')}"
        answer, _ = self._ask("HEAD", url, repository)
        stated = answer.headers.get("Docker-Content-Digest")
        if answer.status_code != requests.codes.not_found and stated is None:
            answer, body = self._ask("GET", url, repository)
            stated = answer.headers.get("Docker-Content-Digest")
            computed = f"sha256:{hashlib.sha256(body).hexdigest()}"
            if stated not in (None, computed):
                raise FactoryError("not what its digest says", f"{repository}:{tag} is {computed}, not {stated}", _HINT)
            stated = computed
        if answer.status_code == requests.codes.not_found:
            return None
        if not re.fullmatch(f"sha256:{SHA256}", stated or ""):
            raise FactoryError("not a sha256 digest", f"{stated!r} for {repository}:{tag}", _HINT)
        return stated

    def _ask(self, method: str, url: str, repository: str) -> tuple[requests.Response, bytes]:
        """An answer that is 200 or 404, and its body; a token is fetched if there is none, or it expired."""
        answer, body = self._send(method, url, self._tokens.get(repository))
        if answer.status_code == requests.codes.unauthorized:
            self._tokens[repository] = self._token(answer, repository)
            answer, body = self._send(method, url, self._tokens[repository])
        if answer.status_code not in (requests.codes.ok, requests.codes.not_found):
            raise FactoryError("the registry refuses", f"{method} {url}: HTTP {answer.status_code}", _HINT)
        return answer, body

    def _token(self, answer: requests.Response, repository: str) -> str:
        """A token for anyone, from where the registry's challenge says (Docker registry token authentication)."""
        scheme, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
        challenge: dict[str, str] = parse_dict_header(rest)  # type: ignore[no-untyped-call]  # its stubs lack types
        if scheme.lower() != "bearer" or not challenge.get("realm"):
            raise FactoryError("the registry wants a login", repository, "name a registry that anyone can read")
        asked = {key: challenge[key] for key in ("service", "scope") if challenge.get(key)}
        url = str(requests.Request("GET", challenge["realm"], params=asked).prepare().url)
        granted, body = self._send("GET", url)
        refusal = FactoryError("the registry gives no token", f"{url}: HTTP {granted.status_code}", _HINT)
        found = parse_model(_Grant, body, refusal)
        token = found.token or found.access_token
        if granted.status_code != requests.codes.ok or token is None:
            raise refusal
        return token

    def _send(self, method: str, url: str, token: str | None = None) -> tuple[requests.Response, bytes]:
        headers = {"Accept": MANIFESTS if "/manifests/" in url else "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            with self._session.request(method, url, headers=headers, stream=True) as response:
                body = b""
                for chunk in response.iter_content(1 << 16):
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise FactoryError("too long an answer", url, _HINT)
                return response, body
        except requests.exceptions.RetryError as error:
            hint = "run this later; nothing was changed"
            raise FactoryError("the registry is busy", f"{url}: {http_error_reason(error)}", hint) from error
        except (requests.RequestException, UnicodeError) as error:
            raise FactoryError("cannot reach the registry", f"{url}: {http_error_reason(error)}", _HINT) from error
