"""A container registry on loopback with tokens, pages, manifests and digests like Docker Hub's, and with faults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from loopback import Handler, answering

Headers = dict[str, str]


def digest_of(manifest: bytes) -> str:
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


class ContainerRegistry:
    """The images, settings and recorded requests of a registry."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, bytes]] = {}
        self.page = 1000
        self.head_tells_digest = True
        self.stated_digest = ""
        """The digest that it reports for every manifest; empty for the true one."""
        self.challenge = ""
        """The WWW-Authenticate header; empty for its own token service."""
        self.next_link = ""
        """The Link header of every page; empty for the true one."""
        self.faults: dict[str, list[tuple[int, Headers]]] = {}
        """Part of a request line -> the statuses of its next responses; 0 closes the connection during the body."""
        self.bodies: dict[str, bytes] = {}
        """Part of a request line -> the body of every response to it."""
        self.asked: list[str] = []
        self.issue = 1
        """The generation of valid tokens; older tokens are rejected."""
        self.url = ""

    def add(self, image: str) -> str:
        """Add an image, such as ``rocm/pytorch:tag``, and return its digest."""
        repository, tag = image.split(":")
        manifest = json.dumps({"schemaVersion": 2, "image": image}).encode()
        self.images.setdefault(repository, {})[tag] = manifest
        return digest_of(manifest)

    def counts(self, part: str) -> int:
        """Count the requests whose line contains `part`."""
        return sum(part in line for line in self.asked)


class _Handler(Handler):
    registry: ContainerRegistry
    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        registry, line = self.registry, f"{self.command} {self.path}"
        registry.asked.append(line)
        for part, faults in registry.faults.items():
            if part in line and faults:
                return self._fail(*faults.pop(0))
        for part, body in registry.bodies.items():
            if part in line:
                return self.answer(200, body)
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/token":
            token = f"{registry.issue} for {query['scope'][0]} of {query['service'][0]}"
            return self.answer(200, json.dumps({"token": token}).encode())
        repository, _, rest = path.removeprefix("/v2/").partition("/manifests/" if "/manifests/" in path else "/tags/")
        scope = f"repository:{repository}:pull"
        if self.headers.get("Authorization") != f"Bearer {registry.issue} for {scope} of loopback":
            own = f'Bearer realm="{registry.url}/token",service="loopback",scope="{scope}"'
            return self.answer(401, b"{}", {"WWW-Authenticate": registry.challenge or own})
        images = registry.images.get(repository)
        if images is None or ("/manifests/" in path and rest not in images):
            return self.answer(404, b'{"errors": []}')
        if "/manifests/" in path:
            return self._manifest(images[rest])
        return self._page(repository, sorted(images), query)

    def _manifest(self, manifest: bytes) -> None:
        assert "vnd.oci.image.index" in self.headers["Accept"], "Docker Hub would give a manifest of the first version"
        tells = self.registry.head_tells_digest or (self.command == "GET" and self.registry.stated_digest)
        stated = self.registry.stated_digest or digest_of(manifest)
        self.answer(200, manifest, {"Docker-Content-Digest": stated} if tells else {})

    def _page(self, repository: str, tags: list[str], query: dict[str, list[str]]) -> None:
        last = query.get("last", [""])[0]
        rest = [tag for tag in tags if tag > last]
        page = rest[: min(self.registry.page, int(query["n"][0]))]
        link = f"</v2/{repository}/tags/list?n={query['n'][0]}&last={page[-1]}>" if len(rest) > len(page) else ""
        link = self.registry.next_link or link
        headers = {"Link": f'{link}; rel="next"'} if link else {}
        self.answer(200, json.dumps({"name": repository, "tags": page}).encode(), headers)

    def _fail(self, status: int, headers: Headers) -> None:
        if status:
            return self.answer(status, b"{}", headers)
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"tags": [')
        self.close_connection = True
        return None


@contextmanager
def running_registry() -> Iterator[ContainerRegistry]:
    """Serve a registry on loopback for the duration of the block."""
    registry = ContainerRegistry()
    with answering(_Handler, registry=registry) as registry.url:
        yield registry
