"""Serve a folder over HTTP on a free port of loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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
def served(folder: Path) -> Iterator[Served]:
    """Serve a folder for the duration of the block."""
    requests: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, requests, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Served(f"http://127.0.0.1:{server.server_port}", requests)
        finally:
            server.shutdown()
            thread.join()
