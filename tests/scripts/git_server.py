"""Git over HTTP on loopback for those who have a token: git's own http-backend behind a password."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopback import Handler, answering

USER = "x-access-token"


class GitServer:
    """Where it is, and who asked."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.expected = "Basic " + base64.b64encode(f"{USER}:{token}".encode()).decode()
        self.url = ""
        self.refused: list[str] = []
        """The requests without the right token."""


class _Handler(Handler):
    server_of: GitServer

    def serve(self) -> None:
        own = self.server_of
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != own.expected:
            own.refused.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            return self.answer(401, headers={"WWW-Authenticate": 'Basic realm="loopback"'})
        path, _, query = self.path.partition("?")
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(own.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": USER,
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return self.answer(int(headers.pop("Status", "200").split()[0]), answer, headers)


@contextmanager
def serving_git(folder: Path, token: str) -> Iterator[GitServer]:
    """Serve the bare repositories of a folder to those who have the token."""
    own = GitServer(folder, token)
    with answering(_Handler, server_of=own) as own.url:
        yield own
