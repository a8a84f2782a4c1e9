"""Resolve the SITE argument to a manifest's address, and read the manifest over HTTP or from a file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

from wheelfactory.core.errors import InputError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.core.query import DOWNLOAD_TIMEOUT_S, call_within

MAX_MANIFEST_BYTES = 1 << 28
"""Room for 25,000 wheels at 10 KB each."""
READ_TIMEOUT_S = 30.0
_CHUNK = 1 << 16


@dataclass(frozen=True)
class ManifestSource:
    """The location of a manifest."""

    manifest: str
    """The manifest's URL."""
    base: str
    """The URL of its directory, with a trailing slash."""
    has_index: bool
    """Whether the package indexes are beside it: a site has them, a manifest by itself may not."""


def resolve_site(site: str) -> ManifestSource:
    """Return the manifest of a site's URL, a manifest's URL, a release directory, or a manifest file.

    Raises InputError for anything else.
    """
    if _is_address(site):
        address = site.partition("#")[0].partition("?")[0]
        folder = address[: address.rindex("/") + 1]
        if address.endswith(".jsonl"):
            return ManifestSource(address, folder, has_index=False)
        base = folder if address.endswith(".html") else address.rstrip("/") + "/"
        return ManifestSource(base + MANIFEST_NAME, base, has_index=True)
    path = Path(site).absolute()
    if "://" in site or not path.exists():
        hint = "pass a site's address starting with https://, a release directory, or a manifest file"
        raise InputError("no such site", site, hint)
    manifest = path / MANIFEST_NAME if path.is_dir() else path
    return ManifestSource(manifest.as_uri(), manifest.parent.as_uri() + "/", has_index=(path / "simple").is_dir())


def _is_address(site: str) -> bool:
    with suppress(ValueError):  # for brackets without an IPv6 address
        return urlsplit(site).scheme in ("http", "https", "file") and "/" in site
    return False


def read_manifest_bytes(source: ManifestSource) -> bytes:
    """Return the bytes of a manifest. Raises InputError with its address if it cannot be read completely."""
    try:
        if urlsplit(source.manifest).scheme == "file":
            with Path(url2pathname(urlsplit(source.manifest).path)).open("rb") as file:
                return _bounded(file, None)
        return call_within(lambda: DOWNLOAD_TIMEOUT_S, lambda: _download(source.manifest))
    except HTTPError as error:
        error.close()
        reason = " ".join(str(error.reason).split())  # the reason of a redirect loop has several lines
        raise _unreadable(source, f"HTTP {error.code} {reason}") from None
    except URLError as error:
        raise _unreadable(source, str(error.reason)) from None
    except (OSError, HTTPException, ValueError) as error:
        strerror = error.strerror if isinstance(error, OSError) else ""
        raise _unreadable(source, strerror or str(error) or type(error).__name__) from None


def _unreadable(source: ManifestSource, why: str) -> InputError:
    shown = unquote(source.manifest) if source.manifest.startswith("file:") else source.manifest
    hint = "check the address and the network, or pass a downloaded copy of manifest.jsonl"
    return InputError("cannot read the manifest", f"{shown} ({why})", hint)


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirects to https, and from http to http; urllib itself refuses files.

    The manifest holds the digests that wheels are checked against, so it must not be changed in transit.
    """

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Follow a redirect. Raises URLError for one to anything but https, or http from http."""
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise URLError(f"redirected to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_308(self, req: Request, fp: IO[bytes], _code: int, msg: str, headers: HTTPMessage) -> object:
        """Handle 308 like 307; Python does so itself from 3.11 on."""
        return self.http_error_307(req, fp, 307, msg, headers)


def _download(address: str) -> bytes:
    headers = {"User-Agent": "wheelfactory-doctor", "Cache-Control": "no-cache"}
    request = Request(address, headers=headers)  # noqa: S310 (`read_manifest_bytes` passes only http and https)
    with build_opener(_SafeRedirects()).open(request, timeout=READ_TIMEOUT_S) as response:
        length = response.headers.get("Content-Length")
        return _bounded(response, int(length) if length else None)


def _bounded(file: IO[bytes], length: int | None) -> bytes:
    """Read a whole file. Raises ValueError if it is too large, or shorter than `length` bytes."""
    parts, size = [], 0
    while part := file.read(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > MAX_MANIFEST_BYTES:
            raise ValueError(f"more than {MAX_MANIFEST_BYTES >> 20} MiB")
    if length is not None and size != length:
        raise ValueError(f"truncated: got {size} of {length} bytes")
    return b"".join(parts)
