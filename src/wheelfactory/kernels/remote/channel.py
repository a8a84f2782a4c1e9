"""The connection to a server of the Remote Execution API, and the methods that are called through it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from wheelfactory.kernels.remote.settings import Remote

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


def open_channel(remote: Remote) -> grpc.aio.Channel:
    """Open a connection, which is made when it is first used, and again when it is lost."""
    options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2000)]
    if not remote.tls:
        return grpc.aio.insecure_channel(remote.address, options)
    credentials = grpc.ssl_channel_credentials(_certificates(remote.ca))
    return grpc.aio.secure_channel(remote.address, credentials, options)


def make_method(channel: grpc.aio.Channel, name: str, answer: Any) -> Any:
    """A method of the server, which answers with messages of the class `answer`."""
    kind = getattr(channel, _STREAMS.get(name, "unary_unary"))
    path = f"/{_SERVICES[name]}/{name}"
    return kind(path, request_serializer=_serialize, response_deserializer=answer.FromString)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _certificates(ca: Path | None) -> bytes | None:
    """The certificates to verify a server with, in PEM; None for those that gRPC brings."""
    defaults = ssl.get_default_verify_paths()
    # OpenSSL's file does not exist on Debian, which has it in the folder
    found = [ca] if ca else [Path(defaults.cafile or ""), Path(defaults.capath or "", "ca-certificates.crt")]
    return next((path.read_bytes() for path in found if path.is_file()), None)
