"""Which cluster to use, and how: what the options ``--remote...`` of a command say."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from wheelfactory.core.errors import InputError


@dataclass(frozen=True)
class Remote:
    """A server of the Remote Execution API, and how to use it."""

    address: str
    """``HOST:PORT``."""
    tls: bool
    instance: str = ""
    """The instance name of the server; empty for its only one."""
    token: Path | None = None
    """A file with a bearer token. It is read for each call, so another program can renew it."""
    ca: Path | None = None
    """A file with certificates to verify the server with, in PEM; None for the system's."""
    platform: Mapping[str, str] = field(default_factory=dict)
    """Properties that workers must have, beside the compiler."""
    ignore_cache: bool = False
    """Whether to execute every compile anew, whatever results the server has, or had in an earlier run."""
    sample: int = 0
    """The number of kernels to compile on this machine, too, and compare."""
    away_s: float = 120.0
    """Seconds to wait for a server that does not answer."""
    no_worker_s: float = 600.0
    """Seconds to wait while every compile is queued and none starts or ends."""

    @property
    def is_protected(self) -> bool:
        """Whether nobody on the way to the server can read or change what is sent: by TLS, or on this machine."""
        return self.tls or _is_loopback(str(urlsplit(f"//{self.address}").hostname))


def parse_remote(
    url: str,
    *,
    token: Path | None = None,
    ca: Path | None = None,
    platform: Mapping[str, str] | None = None,
    ignore_cache: bool = False,
    sample: int = 0,
    publishes: bool = False,
) -> Remote:
    """Read an address such as ``grpcs://HOST:PORT/INSTANCE``.

    If the kernels are published, the cluster executes every compile anew. Raises `InputError` for another URL, if a
    token would be sent without encryption, if kernels to publish come from a cluster without TLS, or if a file is
    missing.
    """
    address, tls, instance = _split_url(url)
    remote = Remote(address, tls, instance, token, ca, platform or {}, ignore_cache or publishes, sample)
    if token and not remote.is_protected:
        raise InputError("a token would be sent without encryption", url, "use grpcs://, or an address of this machine")
    if ca and not tls:
        raise InputError("bad arguments", "--remote-ca with grpc://", "use grpcs://")
    for path in filter(None, (token, ca)):
        if not path.is_file():
            raise InputError("no such file", str(path), "give an existing file")
    if token:
        read_token(token)
    if publishes and not remote.is_protected:
        hint = "use grpcs://; or compile with `wheelfactory kernels SET --remote`, and give the archives to --kernels"
        raise InputError("publishing needs a cluster whose certificate names the server", remote.address, hint)
    return remote


def _split_url(url: str) -> tuple[str, bool, str]:
    """``HOST:PORT``, whether with TLS, and the instance name."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("grpc", "grpcs") or not parts.hostname or not port or parts.username or parts.query:
        hint = "write grpcs://HOST:PORT, or grpcs://HOST:PORT/INSTANCE; grpc:// is without encryption"
        raise InputError("not an address of a Remote Execution server", url, hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}", parts.scheme == "grpcs", parts.path.strip("/")


def read_token(path: Path) -> str:
    """Read the bearer token in a file. Raises `InputError` if it has none, `OSError` if it cannot be read."""
    token = path.read_bytes().strip()
    if not re.fullmatch(rb"[!-~]+", token):
        hint = "write the token alone into the file: printable ASCII characters without spaces"
        raise InputError("not a bearer token", f"the content of {path}", hint)
    return token.decode()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
