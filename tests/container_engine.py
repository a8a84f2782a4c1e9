"""A container engine for tests, dockerd or podman's service, that leaves nothing behind even if the tests are killed.

The engine runs in its own process and mount namespaces, which end with their first process, and that ends with the
tests. The kernel then kills everything in them, containers included, and unmounts. Process ids that the engine reports
(``State.Pid``) are meaningless outside.

Images and containers are in a separate file system in a sparse file without a journal: overlayfs does not work on tmpfs
or on another overlay, and it is faster. Measured on a slow disk: 2 seconds to delete the file instead of 40 seconds to
delete the files of one image, and a third of the time to fill it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import DockerException

from wheelfactory.core.files import remove_scratch, scratch_dir

KIND = os.environ.get("WHEELFACTORY_TEST_ENGINE", "docker")
"""The engine of the tests: ``docker`` or ``podman``."""

FOLDER = Path(tempfile.gettempdir()) / "wheelfactory-engine"
"""Where engines of tests are; sockets must not lie deep."""

START_SECONDS = 300
STOP_SECONDS = 20
"""dockerd gives containers 10 seconds to end before it kills them."""

DISK_GIB = 64
"""Limit for images and containers; the sparse file occupies only what they use."""

_TOOLS = {"docker": ("dockerd", "containerd", "runc"), "podman": ("podman", "conmon", "runc")}

_UNSHARE = ("unshare", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child", "--mount-proc")
_ENTER = ("setpriv", "--pdeathsig=KILL", *_UNSHARE, "tini", "--")  # tini, because neither engine waits for orphans

_DISK = Path("/media")
"""Mount point of the disk in the engine's namespace. A short path, because the engine creates sockets deep below it,
and paths of sockets are limited to 104 bytes."""

_MOUNT = f'mount -o loop,noatime,nobarrier "$1" {_DISK}; shift; exec "$@"'

_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
init_path = "{init}"
"""
"""Settings for podman without systemd, without permission to raise limits, and with both versions of control groups.
Locks are files, because locks in shared memory are shared with other podmans."""


@dataclass(frozen=True)
class Engine:
    """A running container engine, valid inside `engine`."""

    kind: str
    url: str
    """The address of Docker's API, for ``docker.DockerClient(base_url=...)``."""
    log: Path
    process: int
    """The id of its first process; the others descend from it and end with it."""


def find_missing_requirement(kind: str = KIND) -> str | None:
    """Return why this machine cannot run an engine of this kind, or None if it can."""
    if kind not in _TOOLS:
        return f"WHEELFACTORY_TEST_ENGINE must be one of {', '.join(_TOOLS)}"
    if os.geteuid():
        return "needs root"
    for tool in (*_TOOLS[kind], "setpriv", "unshare", "tini", "mkfs.ext4"):
        if not shutil.which(tool):
            return f"needs {tool}"
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode:
        return "needs to be allowed to mount"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    return None


def skip_unless(reason: str | None) -> None:
    """Skip the test if there is a reason; fail instead if CONTAINER_ENGINE is ``required``."""
    if reason:
        required = os.environ.get("CONTAINER_ENGINE") == "required"
        (pytest.fail if required else pytest.skip)(f"no containers: {reason}")


@contextmanager
def engine(folder: Path, kind: str = KIND) -> Iterator[Engine]:
    """Start an engine without images. On exit its processes, mounts and files are removed.

    Check `find_missing_requirement` first. Several engines can share `folder`; starting one also removes what a killed
    run left there. The engine ends with the thread that started it. It has no bridge, so the only networks are ``host``
    and ``none``. Raises `RuntimeError` with the engine's output if it does not respond within `START_SECONDS`.
    """
    remove_scratch(folder)
    with scratch_dir(folder) as own:
        command, environ = _podman(own) if kind == "podman" else _dockerd(own)
        log = own / "log"
        inside = ["sh", "-ec", _MOUNT, "-", str(_make_disk(own)), *command]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*_ENTER, *inside], env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            url = _url(own)
            _wait_for_answer(process, url, log)
            yield Engine(kind, url, log, _first(process))
        finally:
            _stop(process)


def _url(own: Path) -> str:
    return f"unix://{own}/socket"


def _make_disk(own: Path) -> Path:
    """Create a file with an empty file system."""
    disk = own / "disk.ext4"
    with disk.open("wb") as file:
        file.truncate(DISK_GIB << 30)
    options = ("-q", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")
    subprocess.run(["mkfs.ext4", *options, disk], check=True)
    return disk


def _dockerd(own: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of the service, with its files in `own`, and its environment."""
    settings = {
        "data-root": str(_DISK / "data"),
        "exec-root": str(_DISK / "exec"),
        "pidfile": f"{own}/pid",
        "hosts": [_url(own)],
        "storage-driver": "overlay2",  # the silent fallback copies whole images
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
    }
    (own / "daemon.json").write_text(json.dumps(settings))
    return ["dockerd", f"--config-file={own}/daemon.json"], dict(os.environ)


def _podman(own: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of the service, with its files in `own`, and its environment."""
    settings = own / "containers.conf"
    files, processes = (_hard_limit(kind, 32768) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    settings.write_text(_CONTAINERS_CONF.format(files=files, processes=processes, init=shutil.which("tini-static")))
    places = (f"--root={_DISK / 'data'}", f"--runroot={_DISK / 'run'}", f"--tmpdir={_DISK / 'libpod'}")
    command = ["podman", *places, "--storage-driver=overlay", "system", "service", "--time=0", _url(own)]
    return command, {**os.environ, "CONTAINERS_CONF": str(settings), "TMPDIR": str(_DISK)}


def _hard_limit(kind: int, most: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def _wait_for_answer(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the engine listens and responds."""
    deadline = time.monotonic() + START_SECONDS
    try:
        while not _listens(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise DockerException("nothing listens")
            time.sleep(0.05)
        with closing(DockerClient(base_url=url, timeout=START_SECONDS)) as client:
            client.ping()
    except DockerException as error:
        output = log.read_text(errors="replace").splitlines()[-20:]
        raise RuntimeError("\n".join(["the container engine does not answer:", *output])) from error


def _listens(url: str) -> bool:
    """Whether the socket accepts connections. The docker package would leak a socket if nothing listens."""
    with socket.socket(socket.AF_UNIX) as connection:
        return not connection.connect_ex(url.removeprefix("unix://"))


def _first(process: subprocess.Popen[bytes]) -> int:
    """Return the process that `unshare` started in the namespaces."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let the engine stop its containers, then kill the rest."""
    if process.poll() is not None:
        return
    first = _first(process)
    os.kill(first, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.kill(first, signal.SIGKILL)  # the kernel then kills its whole namespace
        process.wait()
