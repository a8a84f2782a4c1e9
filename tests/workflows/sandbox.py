"""The sandbox of steps: own home and temporary folder, no network, and only listed programs.

`PATH` has two folders: fakes that record their calls and print what the test defines, and the tools listed below. Any
other program is "command not found" and fails the step.
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
"""Programs that would leave the sandbox; their fakes record the call and succeed."""

TOOLS = (
    *("awk", "basename", "bash", "cat", "chmod", "cmp", "cp", "cut", "date", "diff", "dirname", "echo", "env", "expr"),
    *("false", "find", "grep", "gzip", "head", "id", "ln", "ls", "mkdir", "mktemp", "mv", "nproc", "od", "printf"),
    *("pwd", "readlink", "realpath", "rm", "rmdir", "sed", "sh", "sha256sum", "sleep", "sort", "stat", "tail", "tar"),
    *("tee", "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "which", "xargs"),
)

STEP_SECONDS = 300
"""Time limit of a step; then its process group is killed and the step fails."""

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
    argv: tuple[str, ...]
    job: str
    """Job id of the step."""
    folder: Path


@dataclass(frozen=True)
class ProcessResult:
    """Exit status and output of a process."""

    returncode: int
    output: str
    """stdout and stderr, interleaved as in the log of a step."""


@dataclass(frozen=True)
class Sandbox:
    """The programs of a run and their recorded calls."""

    root: Path
    environ: Mapping[str, str]
    """Environment of every step in addition to GitHub's; its ``PATH`` comes before the sandbox's."""

    @property
    def path(self) -> str:
        """``PATH``, with fakes first so that a test can replace a tool."""
        return f"{self.root}/stand-ins:{self.root}/tools"

    def calls(self, program: str) -> list[Call]:
        log = self.root / "calls.jsonl"
        lines = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
        found = (Call(tuple(line["argv"]), line["job"], Path(line["folder"])) for line in lines)
        return [call for call in found if call.argv[0] == program]

    def run(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> ProcessResult:
        """Run a step's process in `folder`; the sandbox adds its own variables to `environ`."""
        own = {"LANG": "C.UTF-8", "SANDBOX_CALLS": str(self.root / "calls.jsonl"), **self.environ}
        own["PATH"] = ":".join(filter(None, (self.environ.get("PATH"), self.path)))
        with subprocess.Popen(
            [*_isolate_network(self.root), *command],
            cwd=folder,
            env={**own, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=STEP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return ProcessResult(137, f"{output}\nkilled after {STEP_SECONDS} seconds")
        return ProcessResult(process.returncode, output)


def make_sandbox(root: Path, environ: Mapping[str, str], stand_ins: Mapping[str, str], tools: Sequence[str]) -> Sandbox:
    """Create a sandbox; `stand_ins` maps more fakes to the shell text that they run after recording the call."""
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


def _isolate_network(root: Path) -> list[str]:
    """Return the command prefix that leaves only the loopback network; empty unless root."""
    if os.geteuid():
        return []
    return [str(shutil.which("unshare")), "--net", "--", sys.executable, "-ISB", str(root / "loopback.py")]


def copy_tree(tree: Path, folder: Path, *linked: str) -> None:
    """Copy the tracked and unignored files of `tree`, and create the .venv that ./factory would create.

    With the bytecode of the factory: otherwise each job compiles it again. Files below `linked`, which no job writes,
    are linked.
    """
    # ./factory would install its packages from the network; this .venv sees `src` of the copy, then the test packages
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.split("\0")
    bytecode = [str(path.relative_to(tree)) for path in (tree / "src").rglob("*.pyc")]
    names = [name for name in (*listed, *bytecode) if (tree / name).is_file()]
    links = [name for name in names if name.startswith(linked)]
    # faster than Python; with times, as bytecode is valid for a time of its source
    for option, some in (("--link", links), ("--preserve=mode,timestamps", sorted({*names} - {*links}))):
        if some:
            subprocess.run(["cp", "--parents", option, "--", *some, folder], cwd=tree, check=True)
    if (folder / "factory").exists():
        _make_venv(folder)


def _make_venv(folder: Path) -> None:
    venv, installed = folder / ".venv", Path(sys.prefix)
    packages = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (venv / packages).mkdir(parents=True)
    (venv / "bin").mkdir()
    sources = f"{folder}/src\n{folder}/packages/remote_execution/src\n"
    (venv / packages / "factory.pth").write_text(f"{sources}{installed / packages}\n")
    shutil.copy(installed / "pyvenv.cfg", venv)
    for program in (installed / "bin").iterdir():
        (venv / "bin" / program.name).symlink_to(program if "python" not in program.name else os.path.realpath(program))
    for name in ("installed-check", "installed-docs", "installed-factory"):
        (venv / name).write_text(sources)
