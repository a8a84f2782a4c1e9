"""The manifest of a site, from this machine and over HTTP, whatever the network does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request

import pytest

from wheelfactory.core.errors import InputError
from wheelfactory.doctor import manifest_source
from wheelfactory.doctor.manifest_source import ManifestSource, read_manifest_bytes, resolve_site

DATA = b'{"project": "flash-attn"}\n' * 1000


@pytest.mark.parametrize(
    ("site", "manifest"),
    [
        ("https://me.github.io/wheels", "https://me.github.io/wheels/manifest.jsonl"),
        ("https://me.github.io/wheels/", "https://me.github.io/wheels/manifest.jsonl"),
        ("https://me.github.io/wheels/index.html?rocm=6.4#top", "https://me.github.io/wheels/manifest.jsonl"),
        ("https://me.github.io/wheels/manifest.jsonl", "https://me.github.io/wheels/manifest.jsonl"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/manifest.jsonl"),
        ("file:///srv/release", "file:///srv/release/manifest.jsonl"),
    ],
)
def test_an_address_is_that_of_a_site_or_of_its_manifest(site: str, manifest: str) -> None:
    assert resolve_site(site) == ManifestSource(manifest, manifest.removesuffix("manifest.jsonl"))


def test_a_release_directory_and_its_manifest_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "a release+"
    folder.mkdir()
    (folder / "manifest.jsonl").write_bytes(DATA)
    found = resolve_site(str(folder))
    assert found == resolve_site(str(folder / "manifest.jsonl"))
    assert found.base == f"{folder.as_uri()}/"
    assert read_manifest_bytes(found) == DATA


@pytest.mark.parametrize("site", ["nowhere", "ftp://files.example/", "github:me/wheels", "http:me", "http://[::1", ""])
def test_what_is_no_site_is_refused(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if site:
        with pytest.raises(InputError, match="no such site"):
            resolve_site(site)
    else:
        assert resolve_site(site).base == f"{tmp_path.as_uri()}/"  # the folder one is in


def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the manifest: .*manifest.jsonl \(No such file or directory\)"):
        read_manifest_bytes(resolve_site(str(tmp_path)))


Answering = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answered(answer: Answering) -> Iterator[ManifestSource]:
    """A server on loopback that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield resolve_site(f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()


def sending(data: bytes, *, length: int | None = None, status: int = 200, **headers: str) -> Answering:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if length is not None:
            handler.send_header("Content-Length", str(length))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def complaint(answer: Answering) -> str:
    with answered(answer) as found, pytest.raises(InputError) as caught:
        read_manifest_bytes(found)
    assert str(caught.value).startswith(f"cannot read the manifest: {found.manifest} (")
    assert caught.value.hint
    return str(caught.value).removeprefix(f"cannot read the manifest: {found.manifest} (").removesuffix(")")


@pytest.mark.parametrize("length", [len(DATA), None])
def test_a_manifest_is_read_whole(length: int | None) -> None:
    with answered(sending(DATA, length=length)) as found:
        assert read_manifest_bytes(found) == DATA


def test_a_connection_that_is_cut_is_told() -> None:
    assert complaint(sending(DATA[:100], length=len(DATA))) == f"truncated: got 100 of {len(DATA)} bytes"


def test_a_connection_that_is_cut_before_anything_came_is_told() -> None:
    def hang_up(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    assert "closed connection" in complaint(hang_up)


def test_a_missing_manifest_is_told() -> None:
    assert complaint(sending(b"<p>nothing here", status=404)) == "HTTP 404 Not Found"


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        done.wait(20)

    monkeypatch.setattr(manifest_source, "READ_TIMEOUT_S", 0.3)
    assert complaint(wait) == "timed out"
    done.set()


def test_a_server_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_source, "DOWNLOAD_TIMEOUT_S", -1.0)
    assert complaint(sending(DATA, length=len(DATA))) == "took longer than -1 s"


def test_a_manifest_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_source, "MAX_MANIFEST_BYTES", 1 << 10)
    assert complaint(sending(DATA)) == "more than 0 MiB"


def test_a_server_that_nobody_runs_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with pytest.raises(InputError, match="Connection refused"):
        read_manifest_bytes(resolve_site(address))


def test_a_host_that_does_not_exist_is_told() -> None:
    """As it is without any network; names under .invalid never exist (RFC 6761)."""
    with pytest.raises(InputError, match=r"cannot read the manifest: https://wheels\.invalid/manifest\.jsonl \("):
        read_manifest_bytes(resolve_site("https://wheels.invalid/"))


def test_a_redirection_is_followed() -> None:
    whole = sending(DATA, length=len(DATA))
    with answered(whole) as target, answered(sending(b"", status=302, Location=target.manifest)) as found:
        assert read_manifest_bytes(found) == DATA


@pytest.mark.parametrize("status", [301, 307, 308])
def test_each_kind_of_redirection_is_followed(status: int) -> None:
    whole = sending(DATA, length=len(DATA))
    with answered(whole) as target, answered(sending(b"", status=status, Location=target.manifest)) as found:
        assert read_manifest_bytes(found) == DATA


def test_the_one_that_python_310_does_not_follow_is_followed_by_us() -> None:
    """As 307, which every Python knows; of the handler alone, as the Python that runs this may know 308."""
    asked = Request("http://127.0.0.1/manifest.jsonl")
    headers = HTTPMessage()
    headers["Location"] = "file:///elsewhere"
    with pytest.raises(HTTPError, match="HTTP Error 307") as caught:
        manifest_source._SafeRedirects().http_error_308(asked, BytesIO(), 308, "Permanent Redirect", headers)
    caught.value.close()


def test_a_redirection_without_end_is_told_in_one_line() -> None:
    assert "\n" not in complaint(sending(b"", status=302, Location="/manifest.jsonl"))


def test_a_redirection_to_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    assert "file:" in complaint(sending(b"", status=302, Location=(tmp_path / "secret").as_uri()))


def test_a_redirection_from_https_to_http_is_refused() -> None:
    """Asked of the handler alone: a server with a certificate that is trusted cannot be had here."""
    asked = Request("https://me.github.io/wheels/manifest.jsonl")
    elsewhere = "http://me.github.io/manifest.jsonl"
    with pytest.raises(URLError, match="which is not https"):
        manifest_source._SafeRedirects().redirect_request(asked, BytesIO(), 302, "Found", HTTPMessage(), elsewhere)
