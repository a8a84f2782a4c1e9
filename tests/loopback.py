"""Answer HTTP requests on a free port of loopback, from a folder or by a handler of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """The address of a served folder, and its requests."""

    url: str
    """Without a trailing slash."""
    requests: list[str] = field(default_factory=list)
    """Requested paths, in order."""


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, requests: list[str], *arguments: object, directory: str) -> None:
        self.requests = requests
        super().__init__(*arguments, directory=directory)  # type: ignore[arg-type]  # socketserver's own arguments

    def log_request(self, code: object = "-", size: object = "-") -> None:
        self.requests.append(self.path)

    def log_message(self, *_: object) -> None:
        """Log nothing; clients also request missing files."""


@contextmanager
def answering(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests for the duration of the block; yield the address, without a trailing slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Serve a folder for the duration of the block."""
    requests: list[str] = []
    with answering(partial(_Handler, requests, directory=str(folder))) as url:
        yield Served(url, requests)
