"""Reading a manifest from a file and over HTTP, with all kinds of network errors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPMessage
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request

import pytest

from loopback import Handler, answering
from wheelfactory.core.errors import InputError
from wheelfactory.doctor import manifest_source
from wheelfactory.doctor.manifest_source import ManifestSource, read_manifest_bytes, resolve_site

DATA = b'{"project": "flash-attn"}\n' * 1000


def test_an_address_is_of_a_site_or_of_its_manifest() -> None:
    expected = [
        ("https://me.github.io/wheels", "https://me.github.io/wheels/manifest.jsonl"),
        ("https://me.github.io/wheels/", "https://me.github.io/wheels/manifest.jsonl"),
        ("https://me.github.io/wheels/index.html?rocm=6.4#top", "https://me.github.io/wheels/manifest.jsonl"),
        ("https://me.github.io/wheels/manifest.jsonl", "https://me.github.io/wheels/manifest.jsonl"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/manifest.jsonl"),
        ("file:///srv/release", "file:///srv/release/manifest.jsonl"),
    ]
    for site, manifest in expected:
        base, has_index = manifest.removesuffix("manifest.jsonl"), not site.endswith(".jsonl")
        assert resolve_site(site) == ManifestSource(manifest, base, has_index=has_index)


def test_a_release_directory_resolves_to_its_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "a release+"
    folder.mkdir()
    (folder / "manifest.jsonl").write_bytes(DATA)
    found = resolve_site(str(folder))
    assert found == resolve_site(str(folder / "manifest.jsonl"))
    assert found.base == f"{folder.as_uri()}/"
    assert not found.has_index
    (folder / "simple").mkdir()
    assert resolve_site(str(folder)).has_index
    assert read_manifest_bytes(found) == DATA


def test_anything_else_is_no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for site in ("nowhere", "ftp://files.example/", "github:me/wheels", "http:me", "http://[::1"):
        with pytest.raises(InputError, match="no such site"):
            resolve_site(site)
    assert resolve_site("").base == f"{tmp_path.as_uri()}/"  # the working directory


Responder = Callable[[Handler], None]


@contextmanager
def served(answer: Responder) -> Iterator[ManifestSource]:
    """Serve `answer` on loopback; yield the manifest's location."""
    with answering(Handler, serve=answer) as address:
        yield resolve_site(f"{address}/")


def responding(data: bytes, status: int = 200, /, **headers: str) -> Responder:
    return lambda handler: handler.answer(status, data, headers)


def read_error(answer: Responder) -> str:
    with served(answer) as found, pytest.raises(InputError) as caught:
        read_manifest_bytes(found)
    assert str(caught.value).startswith(f"cannot read the manifest: {found.manifest} (")
    assert caught.value.hint
    return str(caught.value).removeprefix(f"cannot read the manifest: {found.manifest} (").removesuffix(")")


def without_length(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(DATA)


def test_a_manifest_without_a_length_is_read_completely() -> None:
    with served(without_length) as found:
        assert read_manifest_bytes(found) == DATA


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (responding(DATA[:100], **{"Content-Length": str(len(DATA))}), f"truncated: got 100 of {len(DATA)} bytes"),
        (lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), "closed connection"),
        (responding(b"<p>nothing here", 404), "HTTP 404 Not Found"),
        (responding(b"", 302, Location="/manifest.jsonl"), "redirect"),
        (responding(b"", 302, Location="file:///etc/passwd"), "file:"),
    ],
    ids=["truncated", "no response", "missing", "a loop", "to a file"],
)
def test_what_is_no_manifest_is_an_error_of_one_line(answer: Responder, reason: str) -> None:
    error = read_error(answer)
    assert reason in error
    assert "\n" not in error


def test_a_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def wait(_: Handler) -> None:
        done.wait(20)

    monkeypatch.setattr(manifest_source, "READ_TIMEOUT_S", 0.3)
    assert read_error(wait) == "timed out"
    done.set()


def test_an_endless_manifest_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_source, "MAX_MANIFEST_BYTES", 1 << 10)
    assert read_error(responding(DATA)) == "more than 0 MiB"


def test_a_refused_connection_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with pytest.raises(InputError, match="Connection refused"):
        read_manifest_bytes(resolve_site(address))


def test_each_kind_of_redirect_is_followed() -> None:
    with served(responding(DATA)) as target:
        assert read_manifest_bytes(target) == DATA
        for status in (301, 302, 307, 308):
            with served(responding(b"", status, Location=target.manifest)) as found:
                assert read_manifest_bytes(found) == DATA


def test_redirect_308_is_handled_like_307() -> None:
    """Tests only the handler, because Python from 3.11 on handles 308 itself."""
    asked = Request("http://127.0.0.1/manifest.jsonl")
    headers = HTTPMessage()
    headers["Location"] = "file:///elsewhere"
    with pytest.raises(HTTPError, match="HTTP Error 307") as caught:
        manifest_source._SafeRedirects().http_error_308(asked, BytesIO(), 308, "Permanent Redirect", headers)
    caught.value.close()


def test_a_redirect_from_https_to_http_is_an_error() -> None:
    """Tests only the handler, because a server on loopback has no trusted certificate."""
    asked = Request("https://me.github.io/wheels/manifest.jsonl")
    elsewhere = "http://me.github.io/manifest.jsonl"
    with pytest.raises(URLError, match="which is not https"):
        manifest_source._SafeRedirects().redirect_request(asked, BytesIO(), 302, "Found", HTTPMessage(), elsewhere)
