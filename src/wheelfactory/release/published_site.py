"""Read a published site: its rows, wheels and attestations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests

from wheelfactory.core.errors import InputError
from wheelfactory.core.http import http_error_reason, http_session, require_ok, save_body
from wheelfactory.core.published import names_local_file, wheel_url
from wheelfactory.doctor.published_wheels import read_manifest_bytes, resolve_site
from wheelfactory.release.bundle import BUNDLE_SUFFIX
from wheelfactory.release.manifest import WheelRow, parse_rows

_NETWORK_HINT = "check the network, and run the same command again"
_PAGES_HOST = ".github.io"


@dataclass(frozen=True)
class PublishedSite:
    """The rows of a site, and where its files are."""

    name: str
    """As the user named it."""
    rows: tuple[WheelRow, ...]
    base: str | None = None
    """The URL of the manifest's folder, with a trailing slash; None if each row has the URL of its file."""
    repository: str | None = None
    """``OWNER/REPO`` of the GitHub repository that the site belongs to, if its name says so."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Of the process that reads it, for example with ``PIP_CERT``."""

    @property
    def is_local(self) -> bool:
        """Whether it is a directory or a file of this machine."""
        return self.base is not None and self.base.startswith("file:")

    def find_repository(self, row: WheelRow) -> str | None:
        """The GitHub repository that published a row: of the site's name, else of the row's URL; None without one."""
        match = re.fullmatch(r"https://github\.com/([^/]+/[^/]+)/releases/download/.+", row.url or "")
        return self.repository or (match[1] if match else None)

    def fetch_wheel(self, row: WheelRow, folder: Path) -> Path:
        """Return the published wheel: where it is, or downloaded into `folder`. Nothing is verified.

        Raises `InputError` if it cannot be read.
        """
        url = self._url(row)
        path = _local_path(url)
        if path is None:
            path = folder / row.filename
            with self._get(url, stream=True) as response:
                if response is not None:
                    save_body(response, path, row.size)
        if not path.is_file():
            raise InputError("the published wheel is missing", url, "its file was deleted: check a wheel file instead")
        return path

    def fetch_bundle(self, row: WheelRow) -> bytes | None:
        """Return the attestation bundle beside the published wheel; None if there is none. Nothing is verified.

        Raises `InputError` if it cannot be read.
        """
        return self._read(f"{self._url(row)}{BUNDLE_SUFFIX}")

    def fetch_page(self, path: str) -> bytes | None:
        """Return a page of the site, such as ``simple/index.html``; None if there is none.

        Raises `InputError` if it cannot be read.
        """
        return self._read(f"{self.base}{path}")

    def find_size(self, row: WheelRow) -> int | None:
        """Return the bytes of the published wheel, as its server tells them; None if there is no such file.

        It is not downloaded. A server that tells no size is believed to have the size of the row. Raises `InputError`
        if the server fails.
        """
        url = self._url(row)
        local = _local_path(url)
        if local is not None:
            return local.stat().st_size if local.is_file() else None
        # not HEAD: the signed addresses that GitHub redirects to need not allow it. Compression would hide the size
        with self._get(url, headers={"Accept-Encoding": "identity"}, stream=True) as response:
            if response is None:
                return None
            length = response.headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else row.size

    def _url(self, row: WheelRow) -> str:
        if row.url is None and self.base is None:
            raise InputError("the published wheel is missing", row.filename, f"its file was deleted from {self.name}")
        if names_local_file(row.url, self.base or ""):
            hint = "a site must not name files of your machine: use another one"
            raise InputError("not a manifest row", f"{row.filename}: url: a file on another machine", hint)
        return wheel_url(row.filename, row.url, self.base or "")

    def _read(self, url: str) -> bytes | None:
        """Read a small file; None if there is none. Raises `InputError` if it cannot be read."""
        local = _local_path(url)
        if local is not None:
            return local.read_bytes() if local.is_file() else None
        with self._get(url) as response:
            return None if response is None else response.content

    @contextmanager
    def _get(self, url: str, **options: Any) -> Iterator[requests.Response | None]:
        """Open a file of a server; None if the server has none. Raises `InputError` for any other failure."""
        try:
            with http_session(self.environ) as session, session.get(url, **options) as response:
                if response.status_code in (requests.codes.not_found, requests.codes.gone):
                    yield None
                else:
                    require_ok(response)
                    yield response
        except requests.RequestException as error:
            raise InputError("cannot download", f"{url} ({http_error_reason(error)})", _NETWORK_HINT) from None


def read_site(name: str, environ: Mapping[str, str]) -> PublishedSite:
    """Read a site's address, a release directory, or a manifest (address or file), as the doctor does.

    Raises `InputError` for anything else, or if the manifest cannot be read or is invalid.
    """
    source = resolve_site(name)
    rows = parse_rows(read_manifest_bytes(source), source.manifest)
    return PublishedSite(name, rows, source.base, _pages_repository(source.base), environ)


def _pages_repository(address: str) -> str | None:
    """The repository of a GitHub Pages address without a custom domain; None for any other address."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme != "https" or not host.endswith(_PAGES_HOST):
        return None
    # the inverse of `site.index.github_pages_url`
    return f"{host.removesuffix(_PAGES_HOST)}/{parts.path.strip('/').partition('/')[0] or host}"


def _local_path(url: str) -> Path | None:
    return Path(url2pathname(urlsplit(url).path)) if url.startswith("file:") else None
