"""This machine's container engine, Docker or podman: connect to it, explain its errors, remove what a run leaves in it.

A watcher removes the containers that outlive their run, and so does the start of the next run. The watcher is
``python -m wheelfactory.build.engine URL FOLDER``. Its stdin is a pipe that the run never writes to. Linux closes the
pipe when the run ends, even by SIGKILL, and the watcher then cleans up.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.errors import DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from wheelfactory.core.errors import BuildError, FactoryError
from wheelfactory.core.files import lock_folder, remove_scratch, scratch_dir

ENGINE_ERRORS = (DockerException, RequestException, HTTPError, OSError)
"""Exceptions of the SDK when an engine reports an error or stops."""

_KNOWN_ERRORS: Sequence[Mapping[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("engine_errors.yaml").read_text(encoding="utf-8")
)
_OTHER = {"what": "the container engine refused", "hint": "see the engine's log (journalctl -u docker)"}


def engine_error(error: object, which: str) -> BuildError:
    """Make the error to raise for an error of an engine or its SDK during a request for `which`."""
    message = " ".join(str(getattr(error, "strerror", None) or error).split())
    text = f"{message} {error!r}"
    found = (known for known in _KNOWN_ERRORS if re.search("|".join(known["patterns"]), text, re.IGNORECASE))
    known = next(found, _OTHER)
    # the SDK nests errors; the innermost one is the cause
    nested = re.findall(r"\w+Error\(\d+, '([^']+)'\)", message) or re.findall(r'\("(.+)"\)$', message)
    return BuildError(known["what"], f"{which} ({nested[-1] if nested else message[-300:]})", known["hint"])


@contextmanager
def engine_errors(which: str) -> Iterator[None]:
    """Raise `engine_error` for an error of an engine during the block."""
    try:
        yield
    except ENGINE_ERRORS as error:
        raise engine_error(error, which) from None


REQUEST_TIMEOUT_S = 60
"""Timeout of requests that the engine answers at once, not of those that wait for a container."""

ROOT_USER = "0:0"

_SCHEME = "unix://"


@dataclass(frozen=True)
class Engine:
    """A container engine that answers."""

    client: docker.DockerClient
    url: str
    user: str
    """The user of a container, ``UID:GID``, so that its files in mounted folders belong to the caller."""
    build_network: str | None
    """The network for the build steps of an image: None for the engine's own, ``host`` if it has none."""
    limits_memory: bool
    limits_cores: bool
    extra_options: Mapping[str, str]
    """Additional SDK options for every container of this engine."""
    storage: Path
    """The folder of its images."""

    def free_gb(self) -> float | None:
        """Free disk space for images, in 10^9 bytes; None if its storage is not visible here."""
        try:
            return shutil.disk_usage(self.storage).free / 1e9
        except OSError:
            return None


def connect_engine(environ: Mapping[str, str]) -> Engine:
    """Connect to the engine of ``DOCKER_HOST``, or to the first that answers at a usual socket of Docker or podman.

    Raises `BuildError` with the reason if none answers.
    """
    reasons: list[tuple[str, Exception]] = []
    for url in find_engine_urls(environ):
        try:
            return _connect_url(url)
        except (DockerException, OSError) as error:
            reasons.append((url, error))
    # a missing socket is the least informative reason
    url, reason = next((pair for pair in reasons if not isinstance(pair[1], FileNotFoundError)), reasons[0])
    raise engine_error(reason, url)


def find_engine_urls(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the URLs of possible engines. Raises `BuildError` for one on another machine."""
    named = environ.get("DOCKER_HOST")
    if named:
        if not named.startswith(_SCHEME):
            hint = "containers mount folders of this machine: unset DOCKER_HOST, or run the factory on that machine"
            raise BuildError("the container engine must be on this machine", f"DOCKER_HOST={named}", hint)
        yield named
        return
    own = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    for path in ("/var/run/docker.sock", f"{own}/docker.sock", f"{own}/podman/podman.sock", "/run/podman/podman.sock"):
        yield f"{_SCHEME}{path}"


def _connect_url(url: str) -> Engine:
    with socket.socket(socket.AF_UNIX) as tried:  # the SDK leaks its socket if nothing answers
        tried.connect(url.removeprefix(_SCHEME))
    client = docker.DockerClient(base_url=url, timeout=REQUEST_TIMEOUT_S)
    info = client.info()
    security = info.get("SecurityOptions") or ()
    rootless = any("rootless" in option for option in security)
    own = f"{os.getuid()}:{os.getgid()}"
    networks = {network["Name"] for network in client.api.networks()}
    return Engine(
        client=client,
        url=url,
        user=ROOT_USER if rootless else own,  # in a rootless engine, root in a container is the caller
        build_network=None if networks & {"bridge", "podman"} else "host",  # the names of Docker and podman
        limits_memory=bool(info.get("MemoryLimit", True)),
        limits_cores=bool(info.get("CpuCfsQuota", True)),
        # with user namespaces, a container's UID is not the caller's, so opt out
        extra_options={"userns_mode": "host"} if any("userns" in option for option in security) else {},
        storage=Path(info.get("DockerRootDir") or "/nowhere"),
    )


RUN_LABEL = "wheelfactory.run"
"""Label of every container: its run's folder, which the run keeps locked while it lives."""


@contextmanager
def run_folder(engine: Engine, cache: Path) -> Iterator[Path]:
    """Open a folder that identifies a run. On exit, or if this process is killed, a watcher (`main`) removes the run's
    containers.
    """
    remove_orphans(engine, cache)
    with (
        scratch_dir(cache) as folder,
        subprocess.Popen(
            [sys.executable, "-m", "wheelfactory.build.engine", engine.url, folder],
            stdin=subprocess.PIPE,  # the watcher waits for its end
            start_new_session=True,  # so that Ctrl-C does not reach the watcher
        ),
    ):
        yield folder


def remove_containers(engine: Engine, folder: Path) -> None:
    """Remove all containers of a run, also running ones. Raises `BuildError` if the engine does not answer."""
    _remove_labelled(engine, f"{RUN_LABEL}={folder}", lambda _folder: True)


def remove_orphans(engine: Engine, cache: Path) -> None:
    """Remove the containers of dead runs with this cache, as after a power cut."""
    # Runs with another cache may belong to another user, whose folders this process cannot check.
    _remove_labelled(engine, RUN_LABEL, lambda folder: folder.parent == cache and _is_over(folder))


def _remove_labelled(engine: Engine, label: str, is_removed: Callable[[Path], bool]) -> None:
    """Remove the containers with a label, of the runs whose folder `is_removed` accepts."""
    # one request for all: a container may disappear before a second request about it
    with engine_errors("its containers"):
        found = engine.client.api.containers(all=True, filters={"label": label})
    for container in found:
        if is_removed(Path(container["Labels"][RUN_LABEL])):
            with suppress(*ENGINE_ERRORS):  # another process is removing it; if not, the next run will
                engine.client.api.remove_container(container["Id"], force=True, v=True)


def _is_over(folder: Path) -> bool:
    """Whether a run has ended: no process locks its folder."""
    try:
        if folder.is_dir():
            with lock_folder(folder):
                return True
    except (FactoryError, OSError):  # locked, or owned by another user
        return False
    return True


def main(url: str, folder: Path) -> None:
    """Wait for the end of stdin, then remove the run's containers and unlocked scratch folders."""
    sys.stdin.buffer.read()
    with suppress(FactoryError):  # the engine is gone, and there is no one to report to
        remove_containers(connect_engine({"DOCKER_HOST": url}), folder)
    remove_scratch(folder.parent)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
