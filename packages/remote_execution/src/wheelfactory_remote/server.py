"""The server of the Remote Execution API: which one and how to use it, its connection, and what its failures mean.

A failure means: try again, do without one result, do without the cluster, or stop.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

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


_SERVICES = {
    "GetCapabilities": "build.bazel.remote.execution.v2.Capabilities",
    "FindMissingBlobs": "build.bazel.remote.execution.v2.ContentAddressableStorage",
    "BatchUpdateBlobs": "build.bazel.remote.execution.v2.ContentAddressableStorage",
    "GetActionResult": "build.bazel.remote.execution.v2.ActionCache",
    "Execute": "build.bazel.remote.execution.v2.Execution",
    "WaitExecution": "build.bazel.remote.execution.v2.Execution",
    "CancelOperation": "google.longrunning.Operations",
    "Read": "google.bytestream.ByteStream",
    "Write": "google.bytestream.ByteStream",
}
"""The service of each method that is called."""

_STREAMS = {"Execute": "unary_stream", "WaitExecution": "unary_stream", "Read": "unary_stream", "Write": "stream_unary"}
"""The methods with a stream of messages, and on which side."""


_Message = TypeVar("_Message")


def open_channel(remote: Remote) -> grpc.aio.Channel:
    """Open a connection, which is made when it is first used, and again when it is lost."""
    options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2000)]
    if not remote.tls:
        return grpc.aio.insecure_channel(remote.address, options)
    credentials = grpc.ssl_channel_credentials(_certificates(remote.ca))
    return grpc.aio.secure_channel(remote.address, credentials, options)


def make_method(channel: grpc.aio.Channel, name: str, answer: Any, hide: Callable[[bytes], bytes]) -> Any:
    """A method of the server, which returns messages of the class `answer`, or None if the bytes are no message.

    `hide` masks the token in their bytes.
    """
    kind = getattr(channel, _STREAMS.get(name, "unary_unary"))
    path = f"/{_SERVICES[name]}/{name}"
    return kind(
        path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=lambda data: _parse(answer, hide(data)),
    )


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:  # gRPC would print a traceback
        return None


def require_message(message: _Message | None) -> _Message:
    """Return the message of a server. Raises `ResultError` if its bytes could not be parsed."""
    if message is None:
        raise ResultError("the server sent something that is no message")
    return message


def read_message(kind: Any, data: bytes) -> Any:
    """Parse a message of the class `kind` within another one. Raises `ResultError` for another message."""
    return require_message(_parse(kind, data))


def _certificates(ca: Path | None) -> bytes | None:
    """The certificates to verify a server with, in PEM; None for those that gRPC brings."""
    defaults = ssl.get_default_verify_paths()
    # OpenSSL's file does not exist on Debian, which has it in the folder
    found = [ca] if ca else [Path(defaults.cafile or ""), Path(defaults.capath or "", "ca-certificates.crt")]
    return next((path.read_bytes() for path in found if path.is_file()), None)


_CODE = grpc.StatusCode
_REFUSED = (_CODE.UNAUTHENTICATED, _CODE.PERMISSION_DENIED)
_BUSY = (_CODE.RESOURCE_EXHAUSTED,)
_AWAY = (_CODE.UNAVAILABLE, _CODE.DEADLINE_EXCEEDED, _CODE.ABORTED, _CODE.CANCELLED)


class ClusterLostError(Exception):
    """The cluster cannot be used any more; the message says why."""


class ResultError(Exception):
    """The cluster made no usable object of one compile; the message says why."""


class MissingInputsError(ResultError):
    """The server has removed files that the compile needs."""


@dataclass
class Attempts:
    """The attempts of one call.

    Each call has its own: a server may answer the heartbeat while its storage is away, so an answer to one call says
    nothing about another.
    """

    remote: Remote
    hide: Callable[[bytes], bytes]
    _failing_since: float | None = None

    def note_answer(self) -> None:
        """The server has answered."""
        self._failing_since = None

    def note_failure(self, error: grpc.aio.AioRpcError) -> None:
        """Return normally if the call can be tried again.

        Raises `InputError` if the server refuses access, `ClusterLostError` if it has not answered for `Remote.away_s`
        or was busy for `Remote.no_worker_s`, and `ResultError` if trying again would give the same error.
        """
        code = error.code()
        text = self.hide((error.details() or code.name).encode()).decode()
        if code in _REFUSED:
            hint = "write a valid token into the file of --remote-token; compiled kernels are kept: run it again"
            raise InputError("the server refuses access", f"{self.remote.address}: {text}", hint)
        if code not in (*_AWAY, *_BUSY):
            raise result_error(code.value[0], f"{code.name}: {text}")
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        failing_s = now - self._failing_since
        if code in _BUSY and failing_s >= self.remote.no_worker_s:
            raise ClusterLostError(f"it was busy for {self.remote.no_worker_s:.0f} s: {text}")
        if code in _AWAY and failing_s >= self.remote.away_s:
            raise ClusterLostError(f"it did not answer for {self.remote.away_s:.0f} s: {text}")


def result_error(code: int, text: str) -> ResultError:
    """The error for an answer with this code of gRPC: the API prescribes two codes for missing files."""
    is_missing = code in (_CODE.FAILED_PRECONDITION.value[0], _CODE.NOT_FOUND.value[0])
    return MissingInputsError(text) if is_missing else ResultError(text)
