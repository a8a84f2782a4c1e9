"""Read the tags of a repository and their digests from a container registry, without an account.

Docker Registry HTTP API v2, now the OCI distribution specification.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

import requests
from pydantic import Field
from requests.utils import parse_dict_header

from wheelfactory.core.errors import FactoryError
from wheelfactory.core.http import http_error_reason, http_session, next_page_url
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.strict import SHA256

DOCKER_HUB = "https://registry-1.docker.io"

MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
"""The types that `docker pull` accepts. The digest of a multi-platform image is the digest of its index."""

_PAGE_SIZE, _MAX_PAGES = 1000, 100
"""The limit of a response: the specification allows manifests of 4 MiB, and a page of tags has about 100 kB."""
_HINT = "check the network; nothing was changed"


class _Page(FrozenModel, extra="ignore"):
    """One page of the list of tags."""

    tags: tuple[str, ...] | None = None


class _TokenResponse(FrozenModel, extra="ignore"):
    """A token; registries use either name."""

    token: str | None = None
    access_token: str | None = None


class _Manifest(FrozenModel, extra="ignore"):
    """What the manifests and indexes of `MANIFESTS` have in common."""

    schema_version: Literal[2] = Field(alias="schemaVersion")


class Registry:
    """A registry at a URL. Every failed request raises `FactoryError`; only a missing tag is a result."""

    def __init__(self, url: str = DOCKER_HUB) -> None:
        self._url = url.rstrip("/")
        self._tokens: dict[str, str] = {}
        self._session = http_session()

    def list_tags(self, repository: str) -> list[str]:
        """List all tags of a repository."""
        url: str | None = f"{self._url}/v2/{repository}/tags/list?n={_PAGE_SIZE}"
        found: list[str] = []
        for _ in range(_MAX_PAGES):
            response, body = self._request("GET", str(url), repository)
            if response.status_code == requests.codes.not_found:
                raise FactoryError("the registry does not have", repository, "check its name; nothing was changed")
            hint = "check the URL of the registry; nothing was changed"
            error = FactoryError("unexpected response of a registry", repository, hint)
            found += parse_model(_Page, body, error).tags or ()
            error = FactoryError("the list of tags continues on another host", repository, _HINT)
            url = next_page_url(response, self._url, error)
            if url is None:
                return found
        raise FactoryError("the list of tags is endless", repository, _HINT)

    def find_digest(self, repository: str, tag: str) -> str | None:
        """Find the current digest of a tag, ``sha256:...``; None if there is no such tag."""
        url = f"{self._url}/v2/{repository}/manifests/{quote(tag, safe='')}"
        # HEAD, because Docker Hub counts a GET against the pull limit; some registries send the digest only with GET
        response, _ = self._request("HEAD", url, repository)
        digest = response.headers.get("Docker-Content-Digest")
        if response.status_code != requests.codes.not_found and digest is None:
            response, body = self._request("GET", url, repository)
            digest = response.headers.get("Docker-Content-Digest")
            if response.status_code != requests.codes.not_found:
                parse_model(_Manifest, body, FactoryError("not a manifest of an image", f"{repository}:{tag}", _HINT))
            computed = f"sha256:{hashlib.sha256(body).hexdigest()}"
            if digest not in (None, computed):
                raise FactoryError(
                    "the manifest does not match its digest", f"{repository}:{tag} is {computed}, not {digest}", _HINT
                )
            digest = computed
        if response.status_code == requests.codes.not_found:
            return None
        if not re.fullmatch(f"sha256:{SHA256}", digest or ""):
            raise FactoryError("not a sha256 digest", f"{digest!r} for {repository}:{tag}", _HINT)
        return digest

    def _request(self, method: str, url: str, repository: str) -> tuple[requests.Response, bytes]:
        """Send a request, with a new token if needed; return a response with status 200 or 404, and its body."""
        response, body = self._send(method, url, self._tokens.get(repository))
        if response.status_code == requests.codes.unauthorized:
            self._tokens[repository] = self._fetch_token(response, repository)
            response, body = self._send(method, url, self._tokens[repository])
        if response.status_code not in (requests.codes.ok, requests.codes.not_found):
            raise FactoryError(
                "the registry rejected the request", f"{method} {url}: HTTP {response.status_code}", _HINT
            )
        return response, body

    def _fetch_token(self, response: requests.Response, repository: str) -> str:
        """Fetch an anonymous token from the address in the challenge (Docker registry token authentication)."""
        scheme, _, rest = response.headers.get("WWW-Authenticate", "").partition(" ")
        challenge: dict[str, str] = parse_dict_header(rest)  # type: ignore[no-untyped-call]  # untyped in its stubs
        if scheme.lower() != "bearer" or not challenge.get("realm"):
            raise FactoryError("the registry requires a login", repository, "name a public registry")
        query = {key: challenge[key] for key in ("service", "scope") if challenge.get(key)}
        response, body = self._send("GET", challenge["realm"], query=query)
        error = FactoryError("the registry issued no token", f"{response.url}: HTTP {response.status_code}", _HINT)
        found = parse_model(_TokenResponse, body, error)
        token = found.token or found.access_token
        if response.status_code != requests.codes.ok or token is None:
            raise error
        return token

    def _send(
        self, method: str, url: str, token: str | None = None, query: Mapping[str, str] | None = None
    ) -> tuple[requests.Response, bytes]:
        headers = {"Accept": MANIFESTS if "/manifests/" in url else "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            response = self._session.request(method, url, headers=headers, params=query)
            return response, response.content
        except requests.exceptions.RetryError as error:
            hint = "run this later; nothing was changed"
            raise FactoryError("the registry is busy", f"{url}: {http_error_reason(error)}", hint) from error
        except requests.RequestException as error:
            raise FactoryError("cannot reach the registry", f"{url}: {http_error_reason(error)}", _HINT) from error
