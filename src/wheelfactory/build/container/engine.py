"""The container engine of this machine: found by its socket, asked what it can do; Docker's API, podman's too."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import DockerException

from wheelfactory.build.container.troubles import trouble
from wheelfactory.core.errors import BuildError

ANSWER_S = 60
"""How long a request that is answered at once may take; output that is waited for has no limit."""

_SCHEME = "unix://"


@dataclass(frozen=True)
class Engine:
    """An engine that answered."""

    client: docker.DockerClient
    url: str
    user: str
    """Who a container runs as, ``UID:GID``, so that what it leaves in a mounted folder belongs to the caller."""
    bridge: bool
    """Whether containers can have a network of their own."""
    limits_memory: bool
    limits_cores: bool
    own_options: Mapping[str, str]
    """What a container of this engine needs beside all else, in the SDK's words."""
    storage: Path
    """Where it keeps images, on this machine."""

    @property
    def build_network(self) -> str | None:
        """The network that the steps of an image are given: the engine's own, else that of this machine."""
        return None if self.bridge else "host"

    def free_gb(self) -> float | None:
        """Room for images, in units of 10^9 bytes; None if its storage cannot be seen from here."""
        try:
            return shutil.disk_usage(self.storage).free / 1e9
        except OSError:
            return None


def connect(environ: Mapping[str, str]) -> Engine:
    """The engine that ``DOCKER_HOST`` names, or the first that answers where Docker and podman have their sockets.

    Raises `BuildError` that says why none does.
    """
    reasons: list[tuple[str, Exception]] = []
    for url in addresses(environ):
        try:
            return _ask(url)
        except (DockerException, OSError) as error:
            reasons.append((url, error))
    # that nobody has a socket there is the least telling of all reasons
    url, reason = next((pair for pair in reasons if not isinstance(pair[1], FileNotFoundError)), reasons[0])
    raise trouble(reason, url)


def addresses(environ: Mapping[str, str]) -> Iterator[str]:
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
    client = docker.DockerClient(base_url=url, timeout=ANSWER_S)
    said = client.info()
    security = said.get("SecurityOptions") or ()
    rootless = any("rootless" in option for option in security)
    networks = {network["Name"] for network in client.api.networks()}
    return Engine(
        client=client,
        url=url,
        user="0:0" if rootless else f"{os.getuid()}:{os.getgid()}",  # there, root is who runs the engine
        bridge=bool(networks & {"bridge", "podman"}),  # as Docker and podman name it
        limits_memory=bool(said.get("MemoryLimit", True)),
        limits_cores=bool(said.get("CpuCfsQuota", True)),
        # where the engine maps users, the caller is another one in a container unless that is left out
        own_options={"userns_mode": "host"} if any("userns" in option for option in security) else {},
        storage=Path(said.get("DockerRootDir") or "/nowhere"),
    )
