"""Runs a reader on hostile input in a process of its own that may use little time and memory."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable
from pathlib import Path


def run_limited(call: Callable[[], object], *, seconds: int = 10, megabytes: int = 256) -> str:
    """What comes out of `call`: the kind and text of its error, ``nothing``, or the signal that ended it.

    It may use so many seconds of the processor, or one more, and so much memory beyond what this process has.
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


def _report(call: Callable[[], object], writer: int, seconds: int, megabytes: int) -> None:
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(spent) + seconds, resource.RLIM_INFINITY))
        os.write(writer, _text(call).encode("utf-8", "replace")[: 1 << 15])
    finally:
        os._exit(0)  # nothing of the test run may happen twice


def _text(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:  # whatever it is, it is what the test asks for
        return f"{type(error).__name__}: {error}"
    return "nothing"
