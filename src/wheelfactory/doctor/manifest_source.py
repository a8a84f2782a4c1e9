"""What a user calls a site -> the address of its manifest and its bytes, over HTTP or from this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    url2pathname,
)

from wheelfactory.core.errors import InputError

MANIFEST_FILE = "manifest.jsonl"
MAX_MANIFEST_BYTES = 1 << 28
"""Bytes; a row has up to 10 KB, so that this is room for 25,000 wheels."""
READ_TIMEOUT_S = 30.0
DOWNLOAD_TIMEOUT_S = 300.0
_CHUNK = 1 << 16


@dataclass(frozen=True)
class ManifestSource:
    """Where wheels are listed."""

    manifest: str
    """The address of the manifest."""
    base: str
    """The address of the folder that it is in, which ends in a slash."""


def resolve_site(site: str) -> ManifestSource:
    """The manifest of a site's URL, a manifest's URL, a release directory, or a manifest file.

    Raises `InputError` for something else.
    """
    if _is_address(site):
        address = site.partition("#")[0].partition("?")[0]
        folder = address[: address.rindex("/") + 1]
        if address.endswith(".jsonl"):
            return ManifestSource(address, folder)
        base = folder if address.endswith(".html") else address.rstrip("/") + "/"
        return ManifestSource(base + MANIFEST_FILE, base)
    path = Path(site).absolute()
    if "://" in site or not path.exists():
        hint = "name the address of a site, with https:// before it, a release directory, or a manifest file"
        raise InputError("no such site", site, hint)
    manifest = path / MANIFEST_FILE if path.is_dir() else path
    return ManifestSource(manifest.as_uri(), manifest.parent.as_uri() + "/")


def _is_address(site: str) -> bool:
    try:
        return urlsplit(site).scheme in ("http", "https", "file") and "/" in site
    except ValueError:  # brackets that hold no IPv6 address
        return False


def read_manifest_bytes(source: ManifestSource) -> bytes:
    """The bytes of a manifest. Raises `InputError`, with the address, if they cannot be had whole."""
    try:
        if urlsplit(source.manifest).scheme == "file":
            with Path(url2pathname(urlsplit(source.manifest).path)).open("rb") as file:
                return _bounded(file, None)
        return _download(source.manifest)
    except HTTPError as error:
        error.close()
        reason = " ".join(str(error.reason).split())  # that of a loop has lines
        raise _unreadable(source, f"HTTP {error.code} {reason}") from None
    except URLError as error:
        raise _unreadable(source, str(error.reason)) from None
    except (OSError, HTTPException, ValueError) as error:
        strerror = error.strerror if isinstance(error, OSError) else ""
        raise _unreadable(source, strerror or str(error) or type(error).__name__) from None


def _unreadable(source: ManifestSource, why: str) -> InputError:
    shown = unquote(source.manifest) if source.manifest.startswith("file:") else source.manifest
    hint = "check the address and the network; a copy of manifest.jsonl can be named instead"
    return InputError("cannot read the manifest", f"{shown} ({why})", hint)


class _SafeRedirects(HTTPRedirectHandler):
    """Follows no redirection from https to http: the manifest is what says which bytes are right."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """See `HTTPRedirectHandler`; raises `URLError`."""
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise URLError(f"redirected to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_308(self, req: Request, fp: IO[bytes], _code: int, msg: str, headers: HTTPMessage) -> object:
        """As 307, from which it does not differ for what is only read; Python knows it from 3.11 on."""
        return self.http_error_307(req, fp, 307, msg, headers)


def _download(address: str) -> bytes:
    opener = OpenerDirector()  # `build_opener` would speak FTP as well, and open files that a server redirects to
    for handler in (
        *(ProxyHandler(), HTTPHandler(), HTTPSHandler(), _SafeRedirects()),
        *(HTTPErrorProcessor(), HTTPDefaultErrorHandler()),
    ):
        opener.add_handler(handler)
    headers = {"User-Agent": "wheelfactory-doctor", "Cache-Control": "no-cache"}
    request = Request(address, headers=headers)  # noqa: S310 (the handlers above speak http and https alone)
    with opener.open(request, timeout=READ_TIMEOUT_S) as response:
        length = response.headers.get("Content-Length")
        return _bounded(response, int(length) if length else None)


def _bounded(file: IO[bytes], length: int | None) -> bytes:
    """All bytes of a file. Raises `ValueError` if they are too many, take too long, or are fewer than was said."""
    parts, size, deadline = [], 0, time.monotonic() + DOWNLOAD_TIMEOUT_S
    while part := file.read(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > MAX_MANIFEST_BYTES:
            raise ValueError(f"more than {MAX_MANIFEST_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise ValueError(f"not there within {DOWNLOAD_TIMEOUT_S:g} s")
    if length is not None and size != length:
        raise ValueError(f"cut off after {size} of {length} bytes")
    return b"".join(parts)
