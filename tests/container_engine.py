"""A container engine for tests: dockerd, or podman's service, that leaves nothing behind however the tests end.

It runs in process and mount namespaces of its own. They end with their first process, which ends with the tests, killed
or not: the kernel then kills what is left in them, the containers too, and takes the mounts away. So the process ids
that such an engine tells (``State.Pid``) mean nothing outside it.

Its images and containers lie in a file system of its own, in one sparse file without a journal. Overlays need a file
system that can carry them, which a tmpfs or another overlay is not; and it is fast: on a disk where removing what one
image holds took 40 seconds, removing that file took 2, and filling it took a third of the time.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
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
"""The engine that the tests use: ``docker``, or ``podman`` for who asks for it."""

START_SECONDS = 60
STOP_SECONDS = 20
"""dockerd gives containers 10 seconds to end before it kills them."""

DISK_GIB = 64
"""The most that images and containers can hold; only what they do hold is taken."""

_TOOLS = {"docker": ("dockerd", "containerd", "runc"), "podman": ("podman", "conmon", "runc")}

_UNSHARE = ("unshare", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child", "--mount-proc")
_ENTER = ("setpriv", "--pdeathsig=KILL", *_UNSHARE, "tini", "--")  # tini, because neither engine waits for orphans

_DISK = Path("/media")
"""Where the engine sees its disk, instead of what is there for others: a short path, as it makes sockets far below it
whose paths may have 104 bytes."""

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
"""What podman needs where nothing may raise its limits, without systemd, with both versions of control groups mounted;
locks in files, because those in shared memory are shared with other podmans."""


@dataclass(frozen=True)
class Engine:
    """A container engine, while `engine` holds it."""

    kind: str
    url: str
    """Where it serves Docker's API, for ``docker.DockerClient(base_url=...)``."""
    log: Path
    process: int
    """The process id of the first of its processes; all others come from it, and none outlives it."""


def find_missing_requirement(kind: str = KIND) -> str | None:
    """Why there can be no engine of this kind here, or None if there can."""
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
    """Skip the test for a reason that lies in this machine, or fail it if CONTAINER_ENGINE says that all must run."""
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
    """A file that holds an empty file system, to be mounted."""
    disk = own / "disk.ext4"
    with disk.open("wb") as file:
        file.truncate(DISK_GIB << 30)
    options = ("-q", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")
    subprocess.run(["mkfs.ext4", *options, disk], check=True)
    return disk


def _dockerd(own: Path) -> tuple[list[str], dict[str, str]]:
    """The command that serves from `own`, and its environment."""
    settings = {
        "data-root": str(_DISK / "data"),
        "exec-root": str(_DISK / "exec"),
        "pidfile": f"{own}/pid",
        "hosts": [_url(own)],
        "storage-driver": "overlay2",  # else it takes one that copies whole images, and says nothing
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
    }
    (own / "daemon.json").write_text(json.dumps(settings))
    return ["dockerd", f"--config-file={own}/daemon.json"], dict(os.environ)


def _podman(own: Path) -> tuple[list[str], dict[str, str]]:
    """The command that serves from `own`, and its environment."""
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
    """Wait until the engine listens, and then for its first answer."""
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
    """Asked without the docker package, which leaves a socket open when nothing listens."""
    with socket.socket(socket.AF_UNIX) as connection:
        return not connection.connect_ex(url.removeprefix("unix://"))


def _first(process: subprocess.Popen[bytes]) -> int:
    """The process that `unshare` has started in the namespaces."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let the engine end its containers, then end what did not end by itself."""
    if process.poll() is not None:
        return
    first = _first(process)
    os.kill(first, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.kill(first, signal.SIGKILL)  # and with it all in its namespace, before `unshare` hears of it
        process.wait()
