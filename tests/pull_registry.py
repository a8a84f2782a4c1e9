"""A registry on loopback that a container engine pulls one small image from, and the faults it can have.

Engines take one on 127.0.0.1 without TLS. What it answers is the distribution specification's (version 2 of the API).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"

LAYER_BYTES = 3_000_000
"""Of noise: enough for an engine to say more than once how much of it has come."""

_PIECE = 500_000

TAG = "tag"


def digest_of(data: bytes) -> str:
    """As manifests name what they hold."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class PullRegistry:
    """What it holds and how it behaves."""

    port: int
    manifest: bytes
    blobs: dict[str, bytes]
    layer: str
    """The digest of the only layer."""
    asked: list[str] = field(default_factory=list)
    status: int = 200
    """Of every answer to a manifest."""
    cuts: int = 0
    """How many more times the layer ends half-way."""
    pause: float = 0
    """Seconds before each piece of what it sends."""
    other: bytes = b""
    """A manifest to give in place of the one that is asked for."""

    @property
    def repository(self) -> str:
        """The only one it has, as an engine names it."""
        return f"127.0.0.1:{self.port}/rocm/pytorch"

    @property
    def digest(self) -> str:
        """Of the image."""
        return digest_of(self.manifest)


class _Handler(BaseHTTPRequestHandler):
    registry: PullRegistry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.registry.asked.append(self.path)
        kind, _, name = self.path.rpartition("/")
        if self.path == "/v2/":
            return self._answer(200, b"{}", "application/json")
        if kind.endswith("/manifests"):
            return self._manifest(name)
        if name in self.registry.blobs:
            return self._blob(name, self.registry.blobs[name])
        return self._fail(404, "BLOB_UNKNOWN", "blob unknown to registry")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _manifest(self, name: str) -> None:
        registry = self.registry
        if registry.status == 401:
            return self._fail(401, "UNAUTHORIZED", "authentication required")
        if registry.status == 429:
            return self._fail(429, "TOOMANYREQUESTS", "You have reached your pull rate limit.")
        if name not in (TAG, registry.digest):
            return self._fail(404, "MANIFEST_UNKNOWN", "manifest unknown")
        manifest = registry.other or registry.manifest
        return self._answer(200, manifest, _MANIFEST, {"Docker-Content-Digest": digest_of(manifest)})

    def _blob(self, name: str, data: bytes) -> None:
        """All of a blob, or the rest of one that was cut."""
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        sent = len(data)
        if name == self.registry.layer and self.registry.cuts:
            self.registry.cuts -= 1
            sent = len(data) // 2
        headers = {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"} if begin else {}
        self._answer(206 if begin else 200, data[begin:], "application/octet-stream", headers, sent)

    def _fail(self, status: int, code: str, message: str) -> None:
        body = {"errors": [{"code": code, "message": message}]}
        self._answer(status, json.dumps(body).encode(), "application/json")

    def _answer(
        self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None, sent: int | None = None
    ) -> None:
        self.send_response(status)
        own = {
            "Docker-Distribution-Api-Version": "registry/2.0",
            "Content-Type": kind,
            "Content-Length": str(len(body)),
        }
        for name, value in {**own, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        body = b"" if self.command == "HEAD" else body[:sent]
        for start in range(0, len(body), _PIECE):
            time.sleep(self.registry.pause)
            self.wfile.write(body[start : start + _PIECE])
        self.close_connection = sent is not None

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def _image(number: int) -> tuple[bytes, dict[str, bytes], str]:
    """The manifest of an image, what it names, and the digest of its layer; another image for another number."""
    noise, packed = random.Random(number).randbytes(LAYER_BYTES), io.BytesIO()  # noqa: S311 - the same bytes each time
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("noise")
        member.size = len(noise)
        tar.addfile(member, io.BytesIO(noise))
    layer = gzip.compress(packed.getvalue(), compresslevel=1, mtime=0)
    files = {"type": "layers", "diff_ids": [digest_of(packed.getvalue())]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": files}).encode()
    described = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": _CONFIG, "size": len(config), "digest": digest_of(config)},
        "layers": [{"mediaType": _LAYER, "size": len(layer), "digest": digest_of(layer)}],
    }
    blobs = {digest_of(config): config, digest_of(layer): layer}
    return json.dumps(described).encode(), blobs, digest_of(layer)


@contextmanager
def running_pull_registry(number: int) -> Iterator[PullRegistry]:
    """A registry that answers until the block ends; each `number` has an image that shares nothing with others."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        registry = PullRegistry(server.server_port, *_image(number))
        server.RequestHandlerClass = type("Handler", (_Handler,), {"registry": registry})
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join(10)
