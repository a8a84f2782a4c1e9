"""The container engine of this machine: found by its socket, asked what it can do; Docker's API, podman's too.

And what it complains of, as an error that says what to do about it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from wheelfactory.core.errors import BuildError

ENGINE_ERRORS = (DockerException, RequestException, HTTPError, OSError)
"""What the SDK lets through when an engine complains or goes away."""


_KNOWN = (
    (
        r"PermissionError",
        "no permission to use the container engine",
        "add yourself to its group (sudo usermod -aG docker $USER, then log in again), or use --executor local",
    ),
    (
        r"FileNotFoundError|ConnectionRefusedError",
        "no container engine answers",
        "start one (sudo systemctl start docker, or podman system service), set DOCKER_HOST, or use --executor local",
    ),
    (
        r"Connection (?:aborted|broken)|IncompleteRead|RemoteDisconnected|BrokenPipe|ConnectionResetError"
        r"|Read timed out",
        "the container engine went away",
        "see why it stopped (journalctl -u docker), and run the same command again: what was compiled is kept",
    ),
    (
        r"No such container",
        "the container was removed",
        "somebody removed it; run the same command again: what was compiled is kept",
    ),
    (
        r"no space left on device|ENOSPC|disk quota exceeded",
        "no room for the image",
        "make room (docker system prune), move the engine's storage, or take the slim image: --slim",
    ),
    (
        r"toomanyrequests|rate limit|Too Many Requests|\b429\b",
        "the registry lets nobody pull so often",
        "log in to it (docker login), or wait; the layers that came are kept",
    ),
    (
        r"manifest unknown|manifest for .* not found|not found: manifest|repository does not exist|No such image"
        r"|name unknown|image not known|failed to resolve reference .*: not found",
        "no such image",
        "correct the tag in matrix.yaml: scripts/refresh_images.py says which of them the registry has",
    ),
    (
        r"unauthorized|authentication required|no basic auth credentials|(?<!permission )denied: ",
        "the registry does not give the image",
        "correct the tag in matrix.yaml, or log in (docker login)",
    ),
    (
        r"verification failed for digest|does not match provided manifest digest"
        r"|unexpected commit digest",
        "the registry gives something else than what its digest says",
        "run the same command again; if it stays so, find out why before changing the digest in matrix.yaml",
    ),
    (
        r"unexpected EOF|: EOF\b|connection reset|i/o timeout|TLS handshake|no such host|network is unreachable"
        r"|dial tcp|Temporary failure in name resolution|context deadline exceeded|Client\.Timeout",
        "the network was lost",
        "run the same command again when it is back: the layers that came are kept",
    ),
)
"""Errors by the text that an engine prints, each with the `what` and the hint to show; the first match counts.

Texts are those of Docker 20 to 28, of podman 4 and 5, of the Go they are written in, and of Python and the SDK, which
come first: an engine says some of the same of a registry.
"""

_OTHER = ("", "the container engine refused", "the engine's own log tells more (journalctl -u docker)")


def engine_error(error: object, which: str) -> BuildError:
    """The error to raise for what an engine or its SDK complained of while it was asked for `which`."""
    said = " ".join(str(getattr(error, "strerror", None) or error).split())
    seen = f"{said} {error!r}"
    _, what, hint = next((known for known in _KNOWN if re.search(known[0], seen, re.IGNORECASE)), _OTHER)
    # the innermost of the reasons that are nested in an error of the SDK
    nested = re.findall(r"\w+Error\(\d+, '([^']+)'\)", said) or re.findall(r'\("(.+)"\)$', said)
    return BuildError(what, f"{which} ({nested[-1] if nested else said[-300:]})", hint)


REQUEST_TIMEOUT_S = 60
"""How long a request that is answered at once may take; output that is waited for has no limit."""

_SCHEME = "unix://"


@dataclass(frozen=True)
class Engine:
    """An engine that answered."""

    client: docker.DockerClient
    url: str
    user: str
    """Who a container runs as, ``UID:GID``, so that what it leaves in a mounted folder belongs to the caller."""
    has_bridge_network: bool
    """Whether containers can have a network of their own."""
    limits_memory: bool
    limits_cores: bool
    extra_options: Mapping[str, str]
    """What a container of this engine needs beside all else, in the SDK's words."""
    storage: Path
    """Where it keeps images, on this machine."""

    @property
    def build_network(self) -> str | None:
        """The network that the steps of an image are given: the engine's own, else that of this machine."""
        return None if self.has_bridge_network else "host"

    def free_gb(self) -> float | None:
        """Room for images, in units of 10^9 bytes; None if its storage cannot be seen from here."""
        try:
            return shutil.disk_usage(self.storage).free / 1e9
        except OSError:
            return None


def connect_engine(environ: Mapping[str, str]) -> Engine:
    """The engine that ``DOCKER_HOST`` names, or the first that answers where Docker and podman have their sockets.

    Raises `BuildError` that says why none does.
    """
    reasons: list[tuple[str, Exception]] = []
    for url in find_engine_urls(environ):
        try:
            return _ask(url)
        except (DockerException, OSError) as error:
            reasons.append((url, error))
    # that nobody has a socket there is the least telling of all reasons
    url, reason = next((pair for pair in reasons if not isinstance(pair[1], FileNotFoundError)), reasons[0])
    raise engine_error(reason, url)


def find_engine_urls(environ: Mapping[str, str]) -> Iterator[str]:
    """Where an engine may answer, as URLs. Raises `BuildError` for one on another machine."""
    named = environ.get("DOCKER_HOST")
    if named:
        if not named.startswith(_SCHEME):
            raise BuildError(
                "the container engine must be on this machine",
                f"DOCKER_HOST={named}",
                "a container is handed folders of this machine: unset DOCKER_HOST, or run the factory over there",
            )
        yield named
        return
    own = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    for path in ("/var/run/docker.sock", f"{own}/docker.sock", f"{own}/podman/podman.sock", "/run/podman/podman.sock"):
        yield f"{_SCHEME}{path}"


def _ask(url: str) -> Engine:
    with socket.socket(socket.AF_UNIX) as tried:  # the SDK would keep one open that nobody answers
        tried.connect(url.removeprefix(_SCHEME))
    client = docker.DockerClient(base_url=url, timeout=REQUEST_TIMEOUT_S)
    said = client.info()
    security = said.get("SecurityOptions") or ()
    rootless = any("rootless" in option for option in security)
    networks = {network["Name"] for network in client.api.networks()}
    return Engine(
        client=client,
        url=url,
        user="0:0" if rootless else f"{os.getuid()}:{os.getgid()}",  # there, root is who runs the engine
        has_bridge_network=bool(networks & {"bridge", "podman"}),  # as Docker and podman name it
        limits_memory=bool(said.get("MemoryLimit", True)),
        limits_cores=bool(said.get("CpuCfsQuota", True)),
        # where the engine maps users, the caller is another one in a container unless that is left out
        extra_options={"userns_mode": "host"} if any("userns" in option for option in security) else {},
        storage=Path(said.get("DockerRootDir") or "/nowhere"),
    )
