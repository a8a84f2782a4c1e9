"""A real cluster on this machine: PostgreSQL, BuildGrid from PyPI, and buildbox workers in the root of `hip_toolchain`.

The configuration and the worker's program are those of ``examples/cluster``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hip_toolchain import HipToolchain
from shared_folder import file_lock
from wheelfactory.core.files import ROOT, scratch_dir

PACKAGES = ("buildgrid==0.4.4", "psycopg2-binary==2.9.13")
EXAMPLE = ROOT / "examples/cluster"

# the first process of a namespace ends all others of it: nothing outlives a kill
_ENTER = """
mount -t proc proc "$1/proc"; mount --bind "$2" "$1/mnt"; root=$1; shift 2
exec chroot "$root" env -i --chdir=/mnt PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
"""
_UNSHARE = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "sh", "-ec", _ENTER, "-")
# another user takes away what --kill-child has set, so it is set again
_AS_POSTGRES = (
    *("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"),
    *("sh", "-ec"),
)


def make_buildgrid(cache: Path) -> Path:
    """Return the folder of a Python environment with BuildGrid; create it if it is not cached."""
    folder = cache / f"{PACKAGES[0].replace('==', '-')}-{sys.version_info[1]}"
    with file_lock(cache, "buildgrid"):
        if not folder.exists():
            with scratch_dir(cache) as scratch:
                venv.create(scratch / "venv", symlinks=True)
                install = ("uv", "pip", "install", "--quiet", "--python", scratch / "venv/bin/python", *PACKAGES)
                subprocess.run([sys.executable, "-m", *install], check=True)
                (scratch / "venv").rename(folder)
    return folder


def free_port() -> int:
    """A port that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Wait until the condition holds. Raises `TimeoutError`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether something answers on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Cluster:
    """Its processes; each attribute is the first process of a namespace or the process itself."""

    folder: Path
    """For data and logs; it is /mnt in the root."""
    toolchain: HipToolchain
    buildgrid: Path
    compiler: str
    """The property of the workers."""
    port: int = field(default_factory=free_port)
    database_port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address for ``--remote``."""
        return f"grpc://127.0.0.1:{self.port}"

    def start_database(self) -> None:
        """Start PostgreSQL, in the root, and create what BuildGrid needs."""
        tools = next(self.toolchain.root.glob("usr/lib/postgresql/*/bin"))
        inside = f"/{tools.relative_to(self.toolchain.root)}"
        data = self.folder / "pg"
        data.mkdir(mode=0o777)
        data.chmod(0o777)
        self.folder.chmod(0o755)
        script = (
            f"{inside}/initdb -D /mnt/pg/data -A trust -U bgd --no-sync\n"
            f"exec {inside}/postgres -D /mnt/pg/data -p {self.database_port} -c fsync=off "
            "-c listen_addresses=127.0.0.1 -c unix_socket_directories="
        )
        self._start("postgres", [*_UNSHARE, str(self.toolchain.root), str(self.folder), *_AS_POSTGRES, script])
        wait_for(lambda: listens(self.database_port), "PostgreSQL")
        migrate = [*self._bgd, "migrate", "apply", self._database("postgres")]
        with (self.folder / "migrate.log").open("wb") as log:
            wait_for(lambda: subprocess.run(migrate, stdout=log, stderr=log).returncode == 0, "bgd migrate")

    def start_server(self) -> None:
        """Start BuildGrid."""
        text = (EXAMPLE / "buildgrid.yml").read_text()
        for example, own in (
            ("0.0.0.0:8980", f"127.0.0.1:{self.port}"),
            ("postgresql+psycopg2://bgd@postgres:5432/bgd", self._database("postgres")),
            ("/var/lib/buildgrid/cas", str(self.folder / "cas")),
        ):
            assert example in text
            text = text.replace(example, own)
        (self.folder / "buildgrid.yml").write_text(text)
        self._start("server", [*self._bgd, "server", "start", str(self.folder / "buildgrid.yml")])
        wait_for(lambda: listens(self.port), "BuildGrid")

    def start_worker(self, name: str) -> None:
        """Start a worker, which compiles one kernel at a time."""
        (self.folder / "worker.sh").write_bytes((EXAMPLE / "worker.sh").read_bytes())
        arguments = (f"http://127.0.0.1:{self.port}", name, self.compiler, f"/mnt/{name}")
        inside = ["env", "JOBS=1", "sh", "/mnt/worker.sh", *arguments]
        self._start(name, [*_UNSHARE, str(self.toolchain.root), str(self.folder), *inside])

    def is_compiling(self, name: str) -> bool:
        """Whether a compiler runs below a worker."""
        waiting = [self.running[name].pid]
        while waiting:
            folder = Path(f"/proc/{waiting.pop()}")
            try:
                if (folder / "comm").read_text().startswith("clang"):
                    return True
                # of each thread: buildbox starts compiles in others than its first
                for children in folder.glob("task/*/children"):
                    waiting += map(int, children.read_text().split())
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
        return False

    def kill(self, name: str) -> None:
        """Kill a process, and all that it has started."""
        process = self.running.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    @property
    def _bgd(self) -> list[str]:
        # the program names the Python of the folder in which it was installed
        return [str(self.buildgrid / "bin" / name) for name in ("python", "bgd")]

    def _database(self, name: str) -> str:
        return f"postgresql+psycopg2://bgd@127.0.0.1:{self.database_port}/{name}"

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


@contextmanager
def cluster(folder: Path, toolchain: HipToolchain, cache: Path, compiler: str) -> Iterator[Cluster]:
    """Run a cluster with two workers for the duration of the block."""
    made = Cluster(folder, toolchain, make_buildgrid(cache), compiler)
    try:
        made.start_database()
        made.start_server()
        for name in ("worker1", "worker2"):
            made.start_worker(name)
        yield made
    finally:
        for name in reversed([*made.running]):
            made.kill(name)
