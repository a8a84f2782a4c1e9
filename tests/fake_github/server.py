"""Serve a `Repository` on loopback like GitHub, with separate hosts for the API, uploads, storage and the web."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from fake_github import faults
from fake_github.answering import answered, early_answer, from_storage
from fake_github.contract import API, UPLOADS
from fake_github.github import Asked, Clock, FakeGitHub
from fake_github.repository import OWNER_REPO, Repository, RuleError

_KEPT = 1 << 24
"""Limit for a body that is kept; of a larger one, only the digest."""


class _CutError(Exception):
    """Close the connection now."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet, without which each answer waits for an acknowledgement
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, _CutError):
            self.close_connection = True

    def _any(self) -> None:
        github = self.server.github
        url = urlsplit(self.path)
        if self.server.role == "web":
            self._web(github, unquote(url.path))
            return
        upload = self.command == "POST" and url.path.endswith("/assets")
        with github.lock:
            cut_during = upload and github.failing == (len(github.calls), faults.CUT_DURING)
        size, digest, body = self._read(half=cut_during)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        asked = Asked(self.server.role, self.command, unquote(url.path), query, size, digest, body)
        with github.lock:
            self._serve(github, asked)

    def do_GET(self) -> None:
        self._any()

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 (the names that http.server looks for)

    def _read(self, *, half: bool) -> tuple[int, str, bytes | None]:
        """Size, sha256 and, if it is small, the bytes of the body; of `half` a body nothing comes of it."""
        left = size = int(self.headers.get("Content-Length") or 0)
        left = left // 2 if half else left
        digest, kept = hashlib.sha256(), b""
        while left:
            block = self.rfile.read(min(left, 1 << 16))
            if not block:
                raise _CutError
            digest.update(block)
            kept = kept + block if size <= _KEPT else b""
            left -= len(block)
        return size, digest.hexdigest(), kept if size <= _KEPT else None

    def _serve(self, github: FakeGitHub, asked: Asked) -> None:
        fault = github.fault(asked)
        if fault and fault.lags:
            github.lag(faults.LAG_S)
        if github.before:
            github.before(asked)
        self._hold(github, asked)
        if fault in (faults.CUT_BEFORE, faults.CUT_DURING):
            self._cut()
        early = early_answer(github, asked, fault)
        answer = from_storage if asked.role == "storage" else answered
        status, found, headers = early or answer(github, asked, self.headers.get("Authorization"))
        self._judge(github, asked, status, found)
        if fault and fault.kills:
            self._kill(github)
        if fault in (faults.CUT_AFTER, faults.CUT_AND_LAG):
            self._cut()
        if fault is faults.ERROR_AFTER:
            status, found, headers = 500, {"message": "Server Error"}, {}
        self._send(status, found, headers, half=fault is faults.CUT_ANSWER)

    def _hold(self, github: FakeGitHub, asked: Asked) -> None:
        """Validate the request against the contract and the documentation's general rules."""
        if asked.role == "storage":
            if "Authorization" in self.headers:
                github.violations.append(f"{asked.line}: the token went to another host")
            return
        host = UPLOADS if asked.role == "uploads" else API
        kind = self.headers.get("Content-Type", "")
        wrong = github.contract.request(asked.method, host, asked.path, asked.query, asked.body or b"", kind)
        if wrong:
            github.violations.append(f"{asked.line}: {wrong}")
        if not self.headers.get("User-Agent") or self.headers.get("X-GitHub-Api-Version") != "2022-11-28":
            github.violations.append(f"{asked.line}: no User-Agent or version")

    @staticmethod
    def _judge(github: FakeGitHub, asked: Asked, status: int, found: object) -> None:
        if asked.role == "storage":
            return
        host = UPLOADS if asked.role == "uploads" else API
        wrong = github.contract.answer(asked.method, host, asked.path, status, found)
        if wrong:
            github.violations.append(f"answer to {asked.line}: {wrong}")

    def _web(self, github: FakeGitHub, path: str) -> None:
        github.downloads.append(path)
        if "Authorization" in self.headers:
            github.violations.append(f"{path}: the token went to another host")
        match = re.fullmatch(rf"/{OWNER_REPO}/releases/download/([^/]+)/([^/]+)", path)
        try:
            self._send(200, github.repository.at(match[1], match[2]) if match else b"", {})
        except RuleError as error:
            self._send(error.status, error.body, {})

    @staticmethod
    def _kill(github: FakeGitHub) -> None:
        assert github.victim
        os.kill(github.victim(), signal.SIGKILL)
        raise _CutError

    def _cut(self) -> None:
        """Close the connection at once, like a network failure."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _CutError

    def _send(self, status: int, found: object, headers: dict[str, str], *, half: bool = False) -> None:
        if half and not found:
            self._cut()
        body = found if isinstance(found, bytes) else b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        self.wfile.flush()
        if half:
            raise _CutError


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, github: FakeGitHub, role: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.github, self.role = github, role

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def _running(server: _Server) -> Iterator[_Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def running_github() -> Iterator[FakeGitHub]:
    """A GitHub with an empty repository `OWNER_REPO` for the duration of the block."""
    github = FakeGitHub(Clock())
    with ExitStack() as stack:
        addresses = {
            role: stack.enter_context(_running(_Server(github, role))).address
            for role in ("api", "uploads", "storage", "web")
        }
        github.storage = addresses["storage"]
        github.repository = Repository(addresses["api"], addresses["uploads"], addresses["web"])
        yield github
