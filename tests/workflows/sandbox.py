"""Where steps run: a home and a folder for temporary files of their own, no network, and only programs that are named.

`PATH` has two folders. One has stand-ins that record how they were called and answer what the test says. The other has
the tools of the list below, so that any other program is "command not found" and fails the step.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STAND_INS = ("apt-get", "curl", "docker", "gh", "git", "npm", "pip", "pip3", "podman", "sudo", "wget")
"""Programs that reach beyond the sandbox: each only records that it was called, and succeeds."""

TOOLS = (
    *("awk", "basename", "bash", "cat", "chmod", "cmp", "cp", "cut", "date", "diff", "dirname", "echo", "env", "expr"),
    *("false", "find", "grep", "gzip", "head", "id", "ln", "ls", "mkdir", "mktemp", "mv", "nproc", "od", "printf"),
    *("pwd", "readlink", "realpath", "rm", "rmdir", "sed", "sh", "sha256sum", "sleep", "sort", "stat", "tail", "tar"),
    *("tee", "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "which", "xargs"),
)

STEP_SECONDS = 300
"""A step that takes longer is killed, with all that it started, and has failed."""

_STAND_IN = """\
#!{bash}
"{python}" -ISB -c 'import json, os, sys
with open(os.environ["SANDBOX_CALLS"], "a") as calls:
    calls.write(json.dumps({{"argv": ["{name}", *sys.argv[1:]], "job": os.environ.get("GITHUB_JOB", ""),
                            "folder": os.getcwd()}}) + "\\n")' "$@"
{answer}
"""

_LOOPBACK = """\
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14s", b"lo", 0x41, b""))  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Call:
    """How a stand-in was called."""

    argv: tuple[str, ...]
    job: str
    """The id of the job whose step it was."""
    folder: Path


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    returncode: int
    said: str
    """stdout and stderr, as the log of a step has them."""


@dataclass(frozen=True)
class Sandbox:
    """The programs of a run, and the record of calls."""

    root: Path
    environ: Mapping[str, str]
    """What every step finds in its environment, beside what GitHub gives it; a ``PATH`` goes before the sandbox's."""

    @property
    def path(self) -> str:
        """``PATH``: stand-ins before tools, as a test may stand in for a tool."""
        return f"{self.root}/stand-ins:{self.root}/tools"

    def calls(self, program: str) -> list[Call]:
        """The calls of a stand-in, in order."""
        log = self.root / "calls.jsonl"
        lines = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
        found = (Call(tuple(line["argv"]), line["job"], Path(line["folder"])) for line in lines)
        return [call for call in found if call.argv[0] == program]

    def run(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Ended:
        """Run a step's process in `folder`; `environ` is all of its environment but what is the sandbox's own."""
        own = {"LANG": "C.UTF-8", "SANDBOX_CALLS": str(self.root / "calls.jsonl"), **self.environ}
        own["PATH"] = ":".join(filter(None, (self.environ.get("PATH"), self.path)))
        with subprocess.Popen(
            [*_alone(self.root), *command],
            cwd=folder,
            env={**own, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=STEP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said, _ = process.communicate()
                return Ended(137, f"{said}\nkilled after {STEP_SECONDS} seconds")
        return Ended(process.returncode, said)


def make_sandbox(root: Path, environ: Mapping[str, str], stand_ins: Mapping[str, str], tools: Sequence[str]) -> Sandbox:
    """Write the programs: `stand_ins` are more of them, or shell text that one runs after it has recorded its call."""
    for folder in (root / "stand-ins", root / "tools"):
        folder.mkdir(parents=True)
    for name in (*TOOLS, *tools):
        found = shutil.which(name)
        assert found, f"the sandbox needs {name}"
        (root / "tools" / name).symlink_to(found)
    python = Path(sys.base_prefix) / "bin/python3"
    (root / "tools/python3").symlink_to(python)
    bash = shutil.which("bash")
    for name in {*STAND_INS, *stand_ins}:
        program = root / "stand-ins" / name
        program.write_text(_STAND_IN.format(bash=bash, python=python, name=name, answer=stand_ins.get(name, "")))
        program.chmod(0o755)
    (root / "loopback.py").write_text(_LOOPBACK)
    return Sandbox(root, environ)


def _alone(root: Path) -> list[str]:
    """What makes a process one without network but loopback; only root can."""
    if os.geteuid():
        return []
    return [str(shutil.which("unshare")), "--net", "--", sys.executable, "-ISB", str(root / "loopback.py")]


def copy_tree(tree: Path, folder: Path) -> None:
    """A checkout of what git has or would take of `tree`, with the environment that ./factory would make.

    Without it ./factory would install its packages, which takes a network. Its Python sees `src` of the copy first,
    then the packages of the Python that runs the tests.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(
        None, subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.split("\0")
    ):
        if (tree / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree / name, folder / name)
    if (folder / "factory").exists():
        _make_venv(folder)


def _make_venv(folder: Path) -> None:
    venv, installed = folder / ".venv", Path(sys.prefix)
    packages = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (venv / packages).mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / packages / "factory.pth").write_text(f"{folder}/src\n{installed / packages}\n")
    shutil.copy(installed / "pyvenv.cfg", venv)
    for program in (installed / "bin").iterdir():
        (venv / "bin" / program.name).symlink_to(program if "python" not in program.name else os.path.realpath(program))
    for name in ("installed-", "installed-docs"):
        (venv / name).write_text(f"{folder}\n")
