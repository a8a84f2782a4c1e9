"""Reading a manifest from a file and over HTTP, with all kinds of network errors, and parsing its rows.

The parser reads all that `release.manifest` writes, and never raises a traceback.
"""

from __future__ import annotations

import json
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

from doctor.releases import BASE, as_read
from loopback import Handler, answering
from validations import amd_validation, nvidia_validation, with_evidence
from wheelfactory.core.errors import InputError
from wheelfactory.doctor import published_wheels
from wheelfactory.doctor.published_wheels import (
    ManifestSource,
    PublishedWheel,
    parse_wheels,
    read_manifest_bytes,
    resolve_site,
)
from wheelfactory.gpu.validation_report import Hardware, ValidatedPackage
from wheelfactory.release.evidence import as_evidence
from wheelfactory.release.manifest import WheelRow, verified_archs
from wheelfactory.verify.result import GateResult, Status

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

    monkeypatch.setattr(published_wheels, "READ_TIMEOUT_S", 0.3)
    assert read_error(wait) == "timed out"
    done.set()


def test_an_endless_manifest_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_wheels, "MAX_MANIFEST_BYTES", 1 << 10)
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
        published_wheels._SafeRedirects().http_error_308(asked, BytesIO(), 308, "Permanent Redirect", headers)
    caught.value.close()


def test_a_redirect_from_https_to_http_is_an_error() -> None:
    """Tests only the handler, because a server on loopback has no trusted certificate."""
    asked = Request("https://me.github.io/wheels/manifest.jsonl")
    elsewhere = "http://me.github.io/manifest.jsonl"
    with pytest.raises(URLError, match="which is not https"):
        published_wheels._SafeRedirects().redirect_request(asked, BytesIO(), 302, "Found", HTTPMessage(), elsewhere)


SHA256 = "0123456789abcdef" * 4
FILENAME = "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl"
ROW = {
    "format": 2,
    "project": "flash-attn",
    "version": "2.8.3+rocm64torch2.9",
    "filename": FILENAME,
    "sha256": SHA256,
    "size": 1,
    "requires_python": ">=3.9",
    "metadata_sha256": SHA256,
    "published": "2026-01-01T00:00:00Z",
    "cell": "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
    "label": "rocm64torch2.9",
}


def read(*rows: object) -> tuple[PublishedWheel, ...]:
    data = "".join(f"{json.dumps(row)}\n" for row in rows)
    return parse_wheels(data.encode(), "manifest.jsonl", BASE)


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        parse_wheels(data, "manifest.jsonl", BASE)
    return str(caught.value)


def test_every_field_that_the_factory_writes_is_parsed(rows: tuple[WheelRow, ...]) -> None:
    rows = tuple(sorted(rows, key=lambda row: row.filename))
    for row, wheel in zip(rows, as_read(rows), strict=True):
        for field in ("project", "version", "filename", "sha256", "size", "requires_python", "yanked", "cxx11_abi"):
            assert getattr(wheel, field) == getattr(row, field)
        assert (wheel.cell.id if wheel.cell else None) == row.cell
        assert (str(wheel.label) if wheel.label else None) == row.label
        assert (wheel.archs, wheel.glibc) == (row.offload_archs, row.glibc)
        assert wheel.published == "2026-01-01T00:00:00Z"


def test_gates_have_their_status_and_unknown_fields_are_ignored(rows: tuple[WheelRow, ...]) -> None:
    gates = (GateResult.from_findings("import", []), GateResult.not_run("gpu", "no GPU"))
    (wheel,) = as_read([rows[0].model_copy(update={"gates": gates})])
    assert wheel.gates == (("import", str(Status.PASSED)), ("gpu", str(Status.NOT_RUN)))
    assert read({**ROW, "signature": {"by": "somebody"}}) == read(ROW)


def test_verified_archs_equal_the_factorys(rows: tuple[WheelRow, ...]) -> None:
    fallback = ValidatedPackage(project="flash-attention-amd", version="0.1.0", sha256=SHA256)
    mi250x = Hardware(vendor="amd", device="AMD Instinct MI250X", arch="gfx90a")
    passed = GateResult.from_findings("gpu", [], versions={"gpu": "gfx1100:xnack-", "torch": "2.9.1"})
    no_pass = GateResult.not_run("gpu", "no GPU"), GateResult.from_findings("import", [], versions={"gpu": "gfx942"})
    of_test_mode = as_evidence(amd_validation()).model_copy(update={"dropped_launch_options": ("waves_per_eu",)})
    (bare, *_) = rows
    ran = [
        bare,
        bare.model_copy(update={"gates": no_pass}),
        bare.model_copy(update={"gates": (passed,)}),
        bare.model_copy(update={"evidence": (of_test_mode,)}),
        with_evidence(bare, nvidia_validation(), nvidia_validation(dropped_launch_options=None, validated=fallback)),
        with_evidence(bare.model_copy(update={"gates": (passed,)}), amd_validation(), amd_validation(hardware=mi250x)),
    ]
    found = [wheel.verified_on for row in ran for wheel in as_read([row])]
    assert found == [verified_archs(row) for row in ran]
    assert found == [(), (), ("gfx1100",), (), (), ("gfx90a", "gfx942", "gfx1100")]


def test_only_a_local_manifest_can_name_local_files() -> None:
    data = json.dumps({**ROW, "url": f"file:///srv/wheels/{FILENAME}"}).encode()
    (wheel,) = parse_wheels(data, "manifest.jsonl", "file:///srv/site/")
    assert wheel.url == f"file:///srv/wheels/{FILENAME.replace('+', '%2B')}"
    assert refusal(data) == "not a manifest row: manifest.jsonl:1: url: a file on another machine"


def test_the_file_name_has_python_tag_and_machine() -> None:
    expected = [
        ("cp311-cp311-manylinux_2_28_x86_64", "cp311", "x86_64"),
        ("cp313-cp313t-linux_x86_64", "cp313t", "x86_64"),
        ("cp311-cp311-manylinux2014_aarch64.manylinux_2_17_aarch64", "cp311", "aarch64"),
        ("2-cp311-cp311-linux_x86_64", "cp311", "x86_64"),
        ("py3-none-any", None, None),
    ]
    for tags, tag, machine in expected:
        (wheel,) = read({**ROW, "filename": f"flash_attn-2.8.3+rocm64torch2.9-{tags}.whl"})
        assert (wheel.python_tag, wheel.machine) == (tag, machine)


def test_a_truncated_manifest_and_a_page_are_errors_and_an_empty_one_has_no_wheels() -> None:
    data = f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n".encode()
    assert refusal(data[:-20]).startswith("not a manifest row: manifest.jsonl:2: ")
    assert refusal(b"<!doctype html><title>Not found</title>") == "not a manifest but an HTML page: manifest.jsonl"
    assert parse_wheels(b"", "manifest.jsonl", BASE) == ()
