"""The HTTP session: retries, the longest wait for a server, and error messages."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import requests

from loopback import Handler, answering
from wheelfactory.core import http
from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.files import PACKAGE_DIR
from wheelfactory.core.http import http_error_reason, http_session, next_page_url, save_body
from wheelfactory.doctor import published_wheels


class Server:
    """Answers with these statuses and headers, one each time, then with 200."""

    def __init__(self) -> None:
        self.faults: list[tuple[int, dict[str, str]]] = []
        self.asked: list[str] = []
        self.silent = threading.Event()
        """Set while an answer may come."""
        self.silent.set()
        self.url = ""


class _Handler(Handler):
    server_state: Server

    def serve(self) -> None:
        self.server_state.asked.append(self.command)
        self.server_state.silent.wait(5)
        status, headers = self.server_state.faults.pop(0) if self.server_state.faults else (200, {})
        self.answer(status, headers=headers)


@contextmanager
def running() -> Iterator[Server]:
    state = Server()
    with answering(_Handler, server_state=state) as url:
        state.url = f"{url}/?key=secret"
        try:
            yield state
        finally:
            state.silent.set()


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as state:
        yield state


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with http_session() as made:
        yield made


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of urllib3, recorded instead of slept."""
    kept: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", kept.append)
    return kept


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_retried_three_times(
    server: Server, session: requests.Session, pauses: list[float], status: int
) -> None:
    server.faults = [(status, {})] * 3
    assert session.get(server.url).status_code == 200
    assert len(server.asked) == 4
    server.faults = [(status, {})] * 9
    with pytest.raises(requests.RequestException) as failed:
        session.get(server.url)
    assert http_error_reason(failed.value) == f"too many {status} error responses"
    assert len(server.asked) == 8


def test_a_client_error_and_a_post_are_not_retried(server: Server, session: requests.Session) -> None:
    server.faults = [(403, {})]
    assert session.get(server.url).status_code == 403
    server.faults = [(503, {})]
    assert session.post(server.url).status_code == 503
    assert server.asked == ["GET", "POST"]


def test_a_retry_waits_as_long_as_the_server_asks(
    server: Server, session: requests.Session, pauses: list[float]
) -> None:
    server.faults = [(429, {"Retry-After": str(http.LONGEST_PAUSE_S)})]
    assert session.get(server.url).status_code == 200
    assert pauses == [http.LONGEST_PAUSE_S]


@pytest.mark.parametrize(("status", "asked"), [(429, "61"), (503, "Fri, 31 Dec 2999 23:59:59 GMT")])
def test_a_retry_after_a_long_pause_is_refused(
    server: Server, session: requests.Session, pauses: list[float], status: int, asked: str
) -> None:
    server.faults = [(status, {"Retry-After": asked})]
    with pytest.raises(requests.RequestException) as failed:
        session.get(server.url)
    assert http_error_reason(failed.value) == f"HTTP {status}, asks for a pause of more than 60 s"
    assert (len(server.asked), pauses) == (1, [])


def test_without_retries_every_status_is_returned(server: Server) -> None:
    server.faults = [(503, {"Retry-After": "86400"})]
    with http_session(retries=0) as session:
        assert session.get(server.url).status_code == 503


def test_an_unresponsive_server_times_out(server: Server) -> None:
    server.silent.clear()
    with http_session(timeout=0.1, retries=0) as session, pytest.raises(requests.Timeout) as failed:
        session.get(server.url)
    assert http_error_reason(failed.value) == "Read timed out. (read timeout=0.1)"


def dribble(handler: BaseHTTPRequestHandler) -> None:
    """Send a body byte by byte, so that no read of the socket times out."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    with suppress(OSError):
        for _ in range(30):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)


def dribble_header(handler: BaseHTTPRequestHandler) -> None:
    """Send headers byte by byte."""
    with suppress(OSError):
        for _ in range(30):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n"[:1])
            handler.wfile.flush()
            time.sleep(0.05)


@pytest.mark.parametrize("answer", [dribble, dribble_header])
@pytest.mark.parametrize("read", ["page", "file", "manifest"])
def test_a_transfer_has_a_total_time_however_slowly_it_proceeds(
    answer: Callable[[BaseHTTPRequestHandler], None], read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (http, published_wheels):
        monkeypatch.setattr(module, "DOWNLOAD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(_Handler, "serve", answer)
    start = time.monotonic()
    with running() as server, http_session(retries=0) as session:
        with pytest.raises((requests.Timeout, InputError), match="took longer than 0 s"):
            if read == "manifest":
                published_wheels.read_manifest_bytes(published_wheels.resolve_site(f"{server.url}/manifest.jsonl"))
            else:
                save_body(session.get(server.url, stream=read == "file"), tmp_path / "file", 1 << 20)
        assert time.monotonic() - start < 5


def test_an_answer_that_is_larger_than_its_limit_is_not_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_large(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"x" * 101)

    monkeypatch.setattr(http, "MAX_BODY_BYTES", 100)
    monkeypatch.setattr(_Handler, "serve", send_large)
    with http_session(retries=0) as session:
        with pytest.raises(requests.RequestException, match="more than 10 bytes"):
            save_body(session.get(server.url, stream=True), tmp_path / "file", 10)
        with pytest.raises(requests.RequestException, match="more than 100 bytes"):
            session.get(server.url)


@pytest.mark.parametrize(
    "head",
    [
        *(b"302 Found\r\nLocation: " + url for url in (b"http://[", b"http://a..b/", b"http://a:b/")),
        b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5",
    ],
)
def test_an_invalid_answer_is_an_error_of_requests(head: bytes, session: requests.Session, tmp_path: Path) -> None:
    def serve(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 " + head + b"\r\n\r\n")

    with answering(Handler, serve=serve) as url:
        for stream in (False, True):
            with pytest.raises(requests.RequestException), session.get(url, stream=stream) as answer:
                save_body(answer, tmp_path / "file", 100)


def test_a_redirect_from_https_to_http_is_not_followed(session: requests.Session) -> None:
    moved = requests.Response()
    moved.status_code, moved.url = 302, "https://host/list"
    for target in ("https://elsewhere/", "/list", "//elsewhere/"):
        moved.headers["Location"] = target
        assert session.get_redirect_target(moved) == target
    for target in ("http://host/list", "file:///list"):
        moved.headers["Location"] = target
        with pytest.raises(requests.RequestException, match=f"redirected to {target}, which is not https"):
            session.get_redirect_target(moved)


def test_every_request_has_the_limits_of_this_module() -> None:
    other = re.compile(r"requests\.(get|post|request|Session)\(|url(open|retrieve)\(|iter_content\(|_opener\(|OpenerD")
    folders = (PACKAGE_DIR, PACKAGE_DIR.parents[1] / "scripts")
    found = {path.name for folder in folders for path in folder.rglob("*.py") if other.search(path.read_text())}
    assert found == {"http.py", "published_wheels.py"}  # the doctor has only the standard library


def test_pip_cert_names_the_ca_bundle() -> None:
    assert http_session({"PIP_CERT": "/etc/own.pem"}).verify == "/etc/own.pem"
    assert http_session({"PIP_CERT": ""}).verify is True


def test_an_error_reason_has_no_wrapper_no_access_key_and_no_password() -> None:
    with http_session(retries=0) as session, pytest.raises(requests.RequestException) as failed:
        session.get("http://127.0.0.1:9/?key=secret")
    assert http_error_reason(failed.value) == "Failed to establish a new connection: [Errno 111] Connection refused"
    assert (
        http_error_reason(requests.HTTPError("404 of http://host/file?key=secret now")) == "404 of http://host/file now"
    )
    assert (
        http_error_reason(requests.HTTPError("403 of https://me:p@ss@host/simple/x")) == "403 of https://host/simple/x"
    )
    assert http_error_reason(requests.ReadTimeout()) == "ReadTimeout"


def answer(link: str) -> requests.Response:
    made = requests.Response()
    made.url = "https://host/list?page=1"
    made.headers["Link"] = link
    return made


REFUSAL = PublishError("the list goes on elsewhere", "tags", "check the address")


def test_the_next_page_comes_from_the_link_header_and_is_on_the_same_host() -> None:
    assert next_page_url(answer('</list?page=2>; rel="next"'), "https://host", REFUSAL) == "https://host/list?page=2"
    assert next_page_url(answer('</list?page=1>; rel="prev"'), "https://host", REFUSAL) is None
    for link in ("https://other/list", "http://host/list", "https://host:444/list", "//other/list"):
        with pytest.raises(PublishError, match=r"^the list goes on elsewhere: tags: https?://") as refused:
            next_page_url(answer(f'<{link}>; rel="next"'), "https://host/api", REFUSAL)
        assert refused.value.hint == "check the address"
