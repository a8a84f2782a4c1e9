"""Answer HTTP requests on a free port of loopback, from a folder or by a handler of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any


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


class Handler(BaseHTTPRequestHandler):
    """Answers requests of every method by `serve`, and logs nothing."""

    def serve(self) -> None:
        """Answer the request of `command` and `path`."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.serve()

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that http.server calls

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Send a whole answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def answering(handler: Callable[..., BaseHTTPRequestHandler], **state: Any) -> Iterator[str]:
    """Answer requests for the duration of the block; yield the address, without a trailing slash.

    The handler, a class if there is `state`, has that as attributes.
    """
    if state:
        handler = type("Handler", (handler,), state)  # type: ignore[arg-type] # a class
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
