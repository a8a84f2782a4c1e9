"""Run one program in one container: create, follow its output, wait or kill, remove."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from docker.errors import APIError
from docker.models.containers import Container
from docker.types import LogConfig, Mount

from wheelfactory.build.engine import ENGINE_ERRORS, REQUEST_TIMEOUT_S, ROOT_USER, RUN_LABEL, Engine, engine_errors
from wheelfactory.build.executor import BuildCommand, WheelProgram
from wheelfactory.build.image import import_system_image, system_folders
from wheelfactory.core.errors import BuildError
from wheelfactory.core.process import build_failure, deadline_error, deadline_timer, log_output, open_log
from wheelfactory.core.progress import ProgressCallback

KILL_ATTEMPTS = 60
"""Attempts to kill a container at its deadline while the engine does not answer, at least a second apart."""

KILLED_STATUS = 137
"""Exit status of a killed process: 128 + SIGKILL."""

GPU_DEVICES = (Path("/dev/kfd"), Path("/dev/dri"))
"""Device files of the amdgpu driver."""

_Output: TypeAlias = "Iterable[tuple[bytes | None, bytes | None]]"

_NOBODY = "65534:65534"

_OWN_FOLDER = "exec"
"""Option of a folder in memory: Triton loads libraries that it compiled there."""

_MAX_OUTPUT = 8 << 20
"""Bytes that are kept of what a program of a wheel prints; a report has less than one MB."""

# AMD's documented options for its images, beside the devices, the group video and ``seccomp=unconfined``
_GPU_OPTIONS: Mapping[str, Any] = {"cap_add": ["SYS_PTRACE"], "ipc_mode": "host"}


@dataclass(frozen=True)
class ResourceShare:
    """The part of this machine that a container may use."""

    cores: float
    memory_gib: float

    def split(self, count: int) -> ResourceShare:
        """An equal part for each of `count` containers."""
        return ResourceShare(self.cores / count, self.memory_gib / count)


def container_options(
    engine: Engine, command: BuildCommand, share: ResourceShare, run: Path, devices: Iterable[Path]
) -> dict[str, Any]:
    """The SDK's options for the container of a command: mounts, limits and permissions.

    No network, no capabilities, no environment of this machine. A command that writes nothing may run code of a wheel:
    it is nobody's where it would be root's, and only its /tmp, in memory, can be written. `devices` are GPU device
    files; `run` is the run's folder, which labels the container for cleanup.
    """
    apart = not command.writes
    device_paths, memory = [str(device) for device in devices], int(share.memory_gib * (1 << 30))
    reads = [path for path in dict.fromkeys(command.reads) if path not in command.writes]
    security = ["no-new-privileges", "label=disable"]  # label=disable: SELinux would hide mounted folders
    return {
        "command": list(command.argv),
        "environment": dict(command.environ),
        "mounts": [
            *(Mount(str(path), str(path), type="bind", read_only=True) for path in reads),
            *(Mount(str(path), str(path), type="bind") for path in command.writes),
        ],
        "user": _NOBODY if apart and engine.user == ROOT_USER else engine.user,
        "read_only": apart,
        "tmpfs": {"/tmp": _OWN_FOLDER} if apart else {},  # noqa: S108 - of the container, as below
        "working_dir": "/tmp",  # noqa: S108 - of the container, not of this machine
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "labels": {RUN_LABEL: str(run)},
        "security_opt": [*security, "seccomp=unconfined"] if device_paths else security,
        **engine.extra_options,
        # a rootless engine may be unable to set limits
        **({"mem_limit": memory, "memswap_limit": memory} if engine.limits_memory else {}),
        **({"nano_cpus": int(share.cores * 1e9)} if engine.limits_cores else {}),
        **(_gpu_options(device_paths) if device_paths else {}),
    }


def _gpu_options(devices: Sequence[str]) -> dict[str, Any]:
    """The SDK's options for access to a GPU."""
    # groups by number, because a group of the same name may have another number in the image
    nodes = [path for device in devices for path in (Path(device), *Path(device).glob("render*"))]
    owners = dict.fromkeys(str(node.stat().st_gid) for node in nodes if node.exists())
    return {"devices": [f"{device}:{device}" for device in devices], "group_add": ["video", *owners], **_GPU_OPTIONS}


def run_in_container(
    engine: Engine, tag: str, run: Path, share: ResourceShare, command: BuildCommand, report_progress: ProgressCallback
) -> str:
    """Run a program in a new container of an image, return its stdout, and remove the container.

    Raises `BuildError`, which distinguishes lack of memory, a kill from outside and a failed program, and
    `RunAgainError` at the deadline.
    """
    name, printed = f"{Path(command.argv[0]).name} in {tag}", bytearray()
    found = command.writes and GPU_DEVICES[0].exists()  # code of a wheel needs no GPU to be imported
    devices = [device for device in GPU_DEVICES if device.exists()] if found else []
    with (
        open_log(command.log, f"+ {shlex.join(command.argv)} # in {tag}") as log,
        engine_errors(name),
        _start(engine, tag, container_options(engine, command, share, run, devices)) as (container, output),
    ):
        with deadline_timer(command.deadline, partial(_kill, container)) as was_ended:
            last = log_output(_lines(output, printed), log, report_progress)
        status = int(container.wait(timeout=REQUEST_TIMEOUT_S)["StatusCode"])
        container.reload()
        starved = bool(container.attrs["State"].get("OOMKilled"))
    if was_ended():
        raise deadline_error(command.name)
    if status:
        raise _exit_error(name, status, share if starved else None, command.log, last)
    return printed.decode(errors="replace")


def run_wheel_in_container(
    engine: Engine, run: Path, share: ResourceShare, program: WheelProgram
) -> subprocess.CompletedProcess[str]:
    """Run a program of this machine, with its system, in a new container, so that code of a wheel reaches nothing else.

    Raises `BuildError` if the engine fails, and `subprocess.TimeoutExpired`.
    """
    reads = (*system_folders(), *program.reads)
    command = BuildCommand("", program.argv, program.environ, Path(os.devnull), reads, ())
    options = container_options(engine, command, share, run, ())
    options |= {
        "tmpfs": {**options["tmpfs"], str(program.scratch): _OWN_FOLDER},
        "working_dir": str(program.scratch),
        "log_config": LogConfig(type=LogConfig.types.NONE),  # else the engine writes all that it prints to its disk
    }
    program.scratch.chmod(0o1777)  # the folder in memory gets the mode of the one that it hides
    output, errors = bytearray(), bytearray()
    with (
        engine_errors(program.argv[0]),
        _start(engine, import_system_image(engine), options) as (container, parts),
        deadline_timer(time.time() + program.timeout, partial(_kill, container)) as was_ended,
    ):
        for stdout, stderr in parts:  # all of them: an engine whose output nobody reads does not even kill
            if len(output) + len(errors) < _MAX_OUTPUT:
                output += stdout or b""
                errors += stderr or b""
                program.look(bytes(output), bytes(errors))
        status = int(container.wait(timeout=REQUEST_TIMEOUT_S)["StatusCode"])
    if was_ended():
        raise subprocess.TimeoutExpired(program.argv, program.timeout)
    printed = (text.decode(errors="replace") for text in (output, errors))
    # a shell's number for a signal, which `subprocess` gives as a negative one
    return subprocess.CompletedProcess(program.argv, 128 - status if status > 128 else status, *printed)


def _exit_error(name: str, status: int, starved: ResourceShare | None, log: Path, last: list[str]) -> BuildError:
    """The error for an exit status; `starved` is the container's share if Linux killed a process in it for memory."""
    # That kill need not be the cause: the factory retries such a compile, and another may have failed since.
    killed, ending, hint = status == KILLED_STATUS, f"exit status {status}", ""
    if starved:
        ending += ", killed for lack of memory" if killed else "; a process was killed for lack of memory"
        hint = f"out of memory: the container had {starved.memory_gib:.1f} GiB; give it more (--memory), or "
        hint += "reduce parallel compiles (MAX_JOBS)"
    elif killed:
        ending += ", killed from outside"
        hint = "someone killed the container, or this machine ran out of memory (see dmesg); run the same command "
        hint += "again: compiled kernels are kept"
    failed = build_failure(name, ending, log, last)
    if killed:  # the log does not show a kill
        return BuildError(failed.what, failed.which, f"{hint}; the full log is {log}")
    return BuildError(failed.what, failed.which, hint, log=log) if starved else failed


@contextmanager
def _start(engine: Engine, tag: str, options: Mapping[str, Any]) -> Iterator[tuple[Container, _Output]]:
    """Start a container, and yield it with its stdout and stderr; remove it afterwards."""
    container = engine.client.containers.create(tag, **options)
    try:
        output = engine.client.api.attach(str(container.id), stream=True, demux=True)
        container.start()
        yield container, output
    finally:
        with suppress(*ENGINE_ERRORS):  # the engine or the container is gone; the next run cleans up
            container.remove(force=True, v=True)


def _kill(container: Container) -> None:
    for _ in range(KILL_ATTEMPTS):
        try:
            container.kill()
        except APIError:  # it has already ended
            return
        except ENGINE_ERRORS:
            time.sleep(1)
        else:
            return


def _lines(output: _Output, printed: bytearray) -> Iterator[str]:
    """Yield the lines of stderr as they arrive, and append stdout to `printed`."""
    rest = b""
    for stdout, stderr in output:
        printed += stdout or b""
        *lines, rest = (rest + (stderr or b"")).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace") + "\n"
    if rest:
        yield rest.decode(errors="replace") + "\n"
