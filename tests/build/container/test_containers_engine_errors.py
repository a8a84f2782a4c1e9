"""What engines complain of, in their own words, and what a person is told."""

from __future__ import annotations

import pytest
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import ConnectionError as LostConnection
from requests.exceptions import ReadTimeout
from urllib3.exceptions import ProtocolError

from wheelfactory.build.engine import engine_error

PERMISSION = "no permission to use the container engine"
ABSENT = "no container engine answers"
GONE = "the container engine stopped answering"
REMOVED = "the container was removed"
ROOM = "no disk space for the image"
RATE = "pull limit of the registry reached"
NO_IMAGE = "no such image"
DENIED = "the registry denies access to the image"
OTHER_BYTES = "the image does not match its digest"
NETWORK = "network failure"
UNKNOWN = "the container engine refused"

START = "Error while fetching server API version: ('Connection aborted.', "
"""How the SDK begins what it says of an engine that it could not ask even its version."""


COMPLAINTS: dict[str, list[object]] = {
    PERMISSION: [
        DockerException(f"{START}PermissionError(13, 'Permission denied'))"),
    ],
    ABSENT: [
        DockerException(f"{START}FileNotFoundError(2, 'No such file or directory'))"),
        DockerException(f"{START}ConnectionRefusedError(111, 'Connection refused'))"),
        LostConnection(ProtocolError("Connection aborted.", FileNotFoundError(2, "No such file or directory"))),
    ],
    GONE: [
        LostConnection("('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))"),
        LostConnection(ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))),
        LostConnection(ProtocolError("Connection aborted.", BrokenPipeError(32, "Broken pipe"))),
        ProtocolError("Connection broken: InvalidChunkLength(got length b'', 0 bytes read)"),
        ProtocolError("Connection broken: IncompleteRead(0 bytes read)"),
        ReadTimeout("UnixHTTPConnectionPool(host='localhost', port=None): Read timed out. (read timeout=60)"),
    ],
    REMOVED: [
        APIError(
            "404 Client Error for http+docker://localhost/v1.41/containers/429f/json: Not Found "
            '("No such container: 429f")'
        ),
        'no container with name or ID "429f" found: no such container',
    ],
    ROOM: [
        "failed to register layer: Error processing tar file(exit status 1): write /opt/rocm/lib/librocblas.so: "
        "no space left on device",
        "failed to register layer: write /usr/lib/libc.a: disk quota exceeded",
    ],
    RATE: [
        "toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating and "
        "upgrading: https://www.docker.com/increase-rate-limit",
        "error parsing HTTP 429 response body: invalid character '<' looking for beginning of value: \"<html>\"",
    ],
    NO_IMAGE: [
        "manifest for rocm/pytorch:none not found: manifest unknown: manifest unknown",
        "initializing source docker://rocm/pytorch:none: reading manifest none in docker.io/rocm/pytorch: manifest "
        "unknown",
        'failed to resolve reference "docker.io/rocm/pytorch:none": docker.io/rocm/pytorch:none: not found',
        "pull access denied for rocm/none, repository does not exist or may require 'docker login': denied: requested "
        "access to the resource is denied",
        ImageNotFound(
            "404 Client Error for http+docker://localhost/v1.41/containers/create: Not Found "
            '("No such image: wheelfactory/build:0123456789abcdef")'
        ),
        "wheelfactory/build:0123456789abcdef: image not known",
    ],
    DENIED: [
        'Get "https://registry.example.org/v2/": unauthorized: authentication required',
        'Get "http://127.0.0.1:5000/v2/": no basic auth credentials',
    ],
    OTHER_BYTES: [
        "manifest verification failed for digest sha256:1429ffff",
        'failed commit on ref "layer-sha256:14": unexpected commit digest sha256:15, expected sha256:14: failed '
        "precondition",
        "determining manifest MIME type for docker://rocm/pytorch@sha256:14: Manifest does not match provided manifest "
        "digest sha256:14",
    ],
    NETWORK: [
        "unexpected EOF",
        'Get "https://registry-1.docker.io/v2/rocm/pytorch/manifests/latest": EOF',
        "read tcp 10.0.0.2:51234->104.18.1.2:443: read: connection reset by peer",
        APIError(
            "500 Server Error for http+docker://localhost/v1.41/images/create?tag=z&fromImage=127.0.0.1%3A9%2Fx: "
            'Internal Server Error ("Get "http://127.0.0.1:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused")'
        ),
        'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 127.0.0.53:53: server '
        "misbehaving",
        'pinging container registry registry-1.docker.io: Get "https://registry-1.docker.io/v2/": dial tcp: lookup '
        "registry-1.docker.io: no such host",
        'Get "https://registry-1.docker.io/v2/": net/http: TLS handshake timeout',
        'Get "https://registry-1.docker.io/v2/": net/http: request canceled while waiting for connection '
        "(Client.Timeout exceeded while awaiting headers)",
        'Get "https://registry-1.docker.io/v2/": context deadline exceeded',
        "Err:1 http://mirror.example.org/debian bookworm InRelease Temporary failure in name resolution",
    ],
    UNKNOWN: [
        APIError(
            "400 Client Error for http+docker://localhost/v1.41/containers/create: Bad Request "
            '("invalid mount config for type "bind": bind source path does not exist: /gone")'
        ),
        'runc create failed: unable to start container process: exec: "/x/build_rocm.sh": permission denied: unknown',
        "unsupported media type in sha256:0429e429a429",
    ],
}
"""What an error means, and the words of engines, of their SDK and of registries for it."""


@pytest.mark.parametrize(
    ("means", "said"), [(means, said) for means, complaints in COMPLAINTS.items() for said in complaints]
)
def test_a_known_engine_error_is_translated(means: str, said: object) -> None:
    told = engine_error(said, "rocm/pytorch:tag")
    assert told.what == means
    assert told.which.startswith("rocm/pytorch:tag (")
    assert told.hint


def test_only_the_innermost_reason_of_an_error_is_shown() -> None:
    refused = DockerException(f"{START}ConnectionRefusedError(111, 'Connection refused'))")
    assert engine_error(refused, "unix:///x").which == "unix:///x (Connection refused)"
    not_found = APIError('404 Client Error for http+docker://localhost/v1.41/x: Not Found ("No such container: 42")')
    assert engine_error(not_found, "x").which == "x (No such container: 42)"


def test_an_unknown_engine_error_shows_its_end_and_points_to_the_log() -> None:
    told = engine_error("x" * 400 + "\nthe\n  last words", "rocm/pytorch:tag")
    assert told.what == UNKNOWN
    assert told.which.endswith("the last words)") and "\n" not in told.which
    assert len(told.which) < 330
    assert "journalctl" in told.hint
