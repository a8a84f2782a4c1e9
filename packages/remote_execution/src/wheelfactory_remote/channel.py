"""The connection to a server of the Remote Execution API, its methods, and what their failures mean.

A failure means: try again, do without one result, do without the cluster, or stop.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from wheelfactory.core.errors import InputError
from wheelfactory_remote.settings import Remote

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
