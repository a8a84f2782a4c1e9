"""Run a reader on hostile input in a child process with limited time and memory."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path


def run_limited(call: Callable[[], object], *, seconds: int = 10, megabytes: int = 256) -> str:
    """Call a function and return the type and text of its error, ``nothing``, or the signal that killed it.

    `seconds` limits CPU time (rounded up), `megabytes` the memory in addition to that of this process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _report(call, writer, seconds, megabytes)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read().decode()
    _, status = os.waitpid(child, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text


def on_a_full_disk(call: Callable[[], object], room: int) -> str:
    """As `run_limited`, in a process that limits files to `room` bytes: a larger write fails half-way."""

    def limited() -> object:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        return call()

    return run_limited(limited)


def _report(call: Callable[[], object], writer: int, seconds: int, megabytes: int) -> None:
    try:
        gc.freeze()  # objects of the parent, such as channels of gRPC, wait for threads that a child does not have
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(spent) + seconds, resource.RLIM_INFINITY))
        os.write(writer, _text(call).encode("utf-8", "replace")[: 1 << 15])
    finally:
        os._exit(0)  # skip the exit handlers of the test run


def _text(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:  # the test asserts on any error
        return f"{type(error).__name__}: {error}"
    return "nothing"
