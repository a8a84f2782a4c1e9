"""What engines complain of, in their own words, and what a person is told."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import ConnectionError as LostConnection
from requests.exceptions import ReadTimeout
from urllib3.exceptions import ProtocolError

from wheelfactory.build.container.engine import engine_error

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


@dataclass(frozen=True)
class Complaint:
    """Words of an engine or of its SDK, and what they mean."""

    means: str
    said: object


COMPLAINTS = {
    "sdk: socket of another group": Complaint(
        PERMISSION, DockerException(f"{START}PermissionError(13, 'Permission denied'))")
    ),
    "sdk: socket absent": Complaint(
        ABSENT, DockerException(f"{START}FileNotFoundError(2, 'No such file or directory'))")
    ),
    "sdk: socket without a server": Complaint(
        ABSENT, DockerException(f"{START}ConnectionRefusedError(111, 'Connection refused'))")
    ),
    "requests: engine restarted between two requests": Complaint(
        ABSENT, LostConnection(ProtocolError("Connection aborted.", FileNotFoundError(2, "No such file or directory")))
    ),
    "requests: engine killed during a request": Complaint(
        GONE,
        LostConnection("('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))"),
    ),
    "requests: connection reset by the engine": Complaint(
        GONE,
        LostConnection(ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))),
    ),
    "requests: pipe broken": Complaint(
        GONE, LostConnection(ProtocolError("Connection aborted.", BrokenPipeError(32, "Broken pipe")))
    ),
    "urllib3: stream ended amid a chunk": Complaint(
        GONE, ProtocolError("Connection broken: InvalidChunkLength(got length b'', 0 bytes read)")
    ),
    "urllib3: body too short": Complaint(GONE, ProtocolError("Connection broken: IncompleteRead(0 bytes read)")),
    "requests: engine hangs": Complaint(
        GONE,
        ReadTimeout("UnixHTTPConnectionPool(host='localhost', port=None): Read timed out. (read timeout=60)"),
    ),
    "docker: container removed": Complaint(
        REMOVED,
        APIError(
            "404 Client Error for http+docker://localhost/v1.41/containers/429f/json: Not Found "
            '("No such container: 429f")'
        ),
    ),
    "podman: container removed": Complaint(REMOVED, 'no container with name or ID "429f" found: no such container'),
    "docker: disk full while a layer is unpacked": Complaint(
        ROOM,
        "failed to register layer: Error processing tar file(exit status 1): write /opt/rocm/lib/librocblas.so: "
        "no space left on device",
    ),
    "quota": Complaint(ROOM, "failed to register layer: write /usr/lib/libc.a: disk quota exceeded"),
    "docker hub: rate limit": Complaint(
        RATE,
        "toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating and "
        "upgrading: https://www.docker.com/increase-rate-limit",
    ),
    "docker: 429 with a page": Complaint(
        RATE, "error parsing HTTP 429 response body: invalid character '<' looking for beginning of value: \"<html>\""
    ),
    "docker: unknown tag": Complaint(
        NO_IMAGE, "manifest for rocm/pytorch:none not found: manifest unknown: manifest unknown"
    ),
    "podman: unknown tag": Complaint(
        NO_IMAGE,
        "initializing source docker://rocm/pytorch:none: reading manifest none in docker.io/rocm/pytorch: manifest "
        "unknown",
    ),
    "docker with containerd's store: unknown tag": Complaint(
        NO_IMAGE, 'failed to resolve reference "docker.io/rocm/pytorch:none": docker.io/rocm/pytorch:none: not found'
    ),
    "docker hub: unknown repository": Complaint(
        NO_IMAGE,
        "pull access denied for rocm/none, repository does not exist or may require 'docker login': denied: requested "
        "access to the resource is denied",
    ),
    "docker: image removed": Complaint(
        NO_IMAGE,
        ImageNotFound(
            "404 Client Error for http+docker://localhost/v1.41/containers/create: Not Found "
            '("No such image: wheelfactory/build:0123456789abcdef")'
        ),
    ),
    "podman: image removed": Complaint(NO_IMAGE, "wheelfactory/build:0123456789abcdef: image not known"),
    "private registry": Complaint(
        DENIED, 'Get "https://registry.example.org/v2/": unauthorized: authentication required'
    ),
    "private registry that wants a password": Complaint(
        DENIED, 'Get "http://127.0.0.1:5000/v2/": no basic auth credentials'
    ),
    "docker: other manifest": Complaint(OTHER_BYTES, "manifest verification failed for digest sha256:1429ffff"),
    "docker with containerd's store: other layer": Complaint(
        OTHER_BYTES,
        'failed commit on ref "layer-sha256:14": unexpected commit digest sha256:15, expected sha256:14: failed '
        "precondition",
    ),
    "podman: other manifest": Complaint(
        OTHER_BYTES,
        "determining manifest MIME type for docker://rocm/pytorch@sha256:14: Manifest does not match provided manifest "
        "digest sha256:14",
    ),
    "layer cut": Complaint(NETWORK, "unexpected EOF"),
    "answer cut": Complaint(NETWORK, 'Get "https://registry-1.docker.io/v2/rocm/pytorch/manifests/latest": EOF'),
    "connection reset by the registry": Complaint(
        NETWORK, "read tcp 10.0.0.2:51234->104.18.1.2:443: read: connection reset by peer"
    ),
    "registry down": Complaint(
        NETWORK,
        APIError(
            "500 Server Error for http+docker://localhost/v1.41/images/create?tag=z&fromImage=127.0.0.1%3A9%2Fx: "
            'Internal Server Error ("Get "http://127.0.0.1:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused")'
        ),
    ),
    "no name server": Complaint(
        NETWORK,
        'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 127.0.0.53:53: server '
        "misbehaving",
    ),
    "name unknown to the network": Complaint(
        NETWORK,
        'pinging container registry registry-1.docker.io: Get "https://registry-1.docker.io/v2/": dial tcp: lookup '
        "registry-1.docker.io: no such host",
    ),
    "handshake": Complaint(NETWORK, 'Get "https://registry-1.docker.io/v2/": net/http: TLS handshake timeout'),
    "no headers": Complaint(
        NETWORK,
        'Get "https://registry-1.docker.io/v2/": net/http: request canceled while waiting for connection '
        "(Client.Timeout exceeded while awaiting headers)",
    ),
    "deadline": Complaint(NETWORK, 'Get "https://registry-1.docker.io/v2/": context deadline exceeded'),
    "apt without a network": Complaint(
        NETWORK, "Err:1 http://mirror.example.org/debian bookworm InRelease Temporary failure in name resolution"
    ),
    "a folder that is not there": Complaint(
        UNKNOWN,
        APIError(
            "400 Client Error for http+docker://localhost/v1.41/containers/create: Bad Request "
            '("invalid mount config for type "bind": bind source path does not exist: /gone")'
        ),
    ),
    "a program that may not be run": Complaint(
        UNKNOWN,
        'runc create failed: unable to start container process: exec: "/x/build_rocm.sh": permission denied: unknown',
    ),
    "a digest with the number of a status": Complaint(UNKNOWN, "unsupported media type in sha256:0429e429a429"),
}


@pytest.mark.parametrize("complaint", COMPLAINTS.values(), ids=COMPLAINTS.keys())
def test_a_known_engine_error_is_translated(complaint: Complaint) -> None:
    told = engine_error(complaint.said, "rocm/pytorch:tag")
    assert told.what == complaint.means
    assert told.which.startswith("rocm/pytorch:tag (")
    assert told.hint


def test_every_known_engine_error_has_its_own_hint() -> None:
    hints = {complaint.means: engine_error(complaint.said, "x").hint for complaint in COMPLAINTS.values()}
    assert len(set(hints.values())) == len(hints)


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
