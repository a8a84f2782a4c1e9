"""A registry on loopback with one small image that a container engine can pull, and with faults.

Engines accept 127.0.0.1 without TLS. The responses follow the OCI distribution specification (version 2 of the API).
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
from http.server import ThreadingHTTPServer

from loopback import Handler

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"

LAYER_BYTES = 3_000_000
"""Size of the incompressible layer: large enough for several progress messages of an engine."""

_PIECE = 500_000

TAG = "tag"


def digest_of(data: bytes) -> str:
    """Return the digest as manifests write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class PullRegistry:
    """The image and settings of a registry, and its recorded requests."""

    port: int
    manifest: bytes
    blobs: dict[str, bytes]
    layer: str
    """The digest of the only layer."""
    asked: list[str] = field(default_factory=list)
    status: int = 200
    """The status of every response to a request for a manifest."""
    cuts: int = 0
    """How many more downloads of the layer are cut off half-way."""
    pause: float = 0
    """Seconds before each piece of a response."""
    other: bytes = b""
    """A manifest to send instead of the requested one."""

    @property
    def repository(self) -> str:
        """The name of its repository for an engine."""
        return f"127.0.0.1:{self.port}/rocm/pytorch"

    @property
    def digest(self) -> str:
        """The digest of the image."""
        return digest_of(self.manifest)


class _Handler(Handler):
    registry: PullRegistry
    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        self.registry.asked.append(self.path)
        kind, _, name = self.path.rpartition("/")
        if self.path == "/v2/":
            return self._answer(200, b"{}", "application/json")
        if kind.endswith("/manifests"):
            return self._manifest(name)
        if name in self.registry.blobs:
            return self._blob(name, self.registry.blobs[name])
        return self._fail(404, "BLOB_UNKNOWN", "blob unknown to registry")

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
        """Send a blob, or the rest of a blob that was cut off."""
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


def _image(number: int) -> tuple[bytes, dict[str, bytes], str]:
    """Return the manifest of an image, its blobs, and the digest of its layer; each number gives another image."""
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
    """Serve a registry for the duration of the block. Images of different `number` share nothing."""
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
