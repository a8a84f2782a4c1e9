"""Read the wheels that a site publishes: find its manifest, download it, and parse its rows.

Malformed input raises `InputError` and nothing else. Unlike `wheelfactory.release.manifest` this needs no packages,
reads only the fields needed to choose a wheel, and ignores unknown fields, because a saved doctor can be older than the
manifest. Both share the rules of `wheelfactory.core.row`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.core.published import MANIFEST_NAME, is_amd_proof, names_local_file, sort_proved_archs, wheel_url
from wheelfactory.core.query import DOWNLOAD_TIMEOUT_S, call_within
from wheelfactory.core.row import parse_lines

MAX_MANIFEST_BYTES = 1 << 28
"""Room for 25,000 wheels at 10 KB each."""
READ_TIMEOUT_S = 30.0


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
    while part := file.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_MANIFEST_BYTES:
            raise ValueError(f"more than {MAX_MANIFEST_BYTES >> 20} MiB")
    if length is not None and size != length:
        raise ValueError(f"truncated: got {size} of {length} bytes")
    return b"".join(parts)


@dataclass(frozen=True)
class PublishedWheel:
    """A published wheel: the manifest fields needed to choose it."""

    project: str
    version: str
    filename: str
    url: str
    """The absolute URL of the file, with ``%2B`` for ``+``."""
    sha256: str
    size: int
    requires_python: str
    published: str
    yanked: str | None = None
    cell: Cell | None = None
    label: Label | None = None
    """None for a dependency, like `cell`."""
    archs: tuple[str, ...] = ()
    cxx11_abi: bool | None = None
    glibc: str | None = None
    gates: tuple[tuple[str, str], ...] = ()
    """Each gate and its status: ``passed``, ``failed``, ``not run``."""
    torch_symbols: tuple[str, ...] = ()
    """The symbols of torch that a CK wheel needs; empty for one that was published without the list."""
    other_torches: tuple[str, ...] = ()
    """Other minor versions of torch that define these symbols (`wheelfactory.release.manifest.WheelRow`)."""
    verified_on: tuple[str, ...] = ()
    """Archs of the AMD GPUs on which its results were correct (`wheelfactory.release.manifest.verified_archs`)."""

    @property
    def built(self) -> Label:
        """What it was built for; only of a flash-attn, which has a label (`find_fit` keeps no other wheel)."""
        assert self.label
        return self.label

    @property
    def python_tag(self) -> str | None:
        """``cp311``, ``cp313t``; None for a wheel for any Python."""
        # the ABI tag, because the python tag of cp313t is cp313
        abi = self._tags[1]
        return None if abi == "none" else abi

    @property
    def machine(self) -> str | None:
        """``x86_64``; None for a wheel for any machine."""
        platform = self._tags[2]
        match = re.search(r"(?:linux|manylinux\d+|manylinux_\d+_\d+)_(\w+)$", platform.split(".")[0], re.ASCII)
        return match[1] if match else None

    @property
    def _tags(self) -> list[str]:
        return self.filename[: -len(".whl")].split("-")[-3:]


def parse_wheels(data: bytes, source_name: str, base: str) -> tuple[PublishedWheel, ...]:
    """Parse a manifest. `source_name` names it in errors; `base` is the URL of its directory.

    Raises InputError with `source_name` and the line number for an invalid row (`wheelfactory.core.row.parse_lines`).
    """
    if data.lstrip()[:1] == b"<":
        hint = "pass the address of the site or of its manifest.jsonl"
        raise InputError("not a manifest but an HTML page", source_name, hint)
    refusal = InputError("not a manifest row", source_name, "the file may be damaged or truncated; download it again")
    return tuple(_wheel(row, base, place) for place, row in parse_lines(data, refusal))


def _wheel(row: Mapping[str, Any], base: str, place: InputError) -> PublishedWheel:
    cell, label, url = row.get("cell"), row.get("label"), row.get("url")
    if names_local_file(url, base):
        raise InputError(place.what, f"{place.which}: url: a file on another machine", place.hint)
    same = ("project", "version", "filename", "sha256", "size", "requires_python", "published")
    values = {name: row[name] for name in same}
    values |= {name: row.get(name) for name in ("yanked", "cxx11_abi", "glibc")}
    values |= {name: tuple(row.get(name, ())) for name in ("torch_symbols", "other_torches")}
    return PublishedWheel(
        **values,
        url=wheel_url(row["filename"], url, base).replace("+", "%2B"),
        cell=None if cell is None else Cell.parse(cell),
        label=None if label is None else Label.parse(label),
        archs=tuple(row.get("offload_archs", ())),
        gates=tuple((gate["gate"], gate["status"]) for gate in row.get("gates", ())),
        verified_on=sort_proved_archs(_proved_archs(row)),
    )


def _proved_archs(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield archs from AMD evidence outside the non-AMD GPU test mode, and from a passed ``gpu`` gate."""
    for piece in row.get("evidence", ()):
        if is_amd_proof(piece.get("vendor"), piece.get("dropped_launch_options")):
            yield piece["arch"]
    for gate in row.get("gates", ()):
        if (gate["gate"], gate["status"]) == ("gpu", "passed") and "gpu" in gate.get("versions", {}):
            yield gate["versions"]["gpu"]
