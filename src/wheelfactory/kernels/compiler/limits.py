"""What would stop a compile or a link, found before it starts."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.key import diff_key_parts
from wheelfactory.kernels.compiler.store import SetKey

_POINTER = 8
"""Bytes that each argument takes beside its text (Linux 4.13 and later)."""

_OTHER_ARGUMENTS = 16 << 10
"""Bytes to allow at a link for flags and libraries."""

MAX_ARGUMENT_BYTES = 6 << 20
"""Bytes that Linux allows for arguments and environment at most: three quarters of its default stack limit (exec.c)."""

_MOST_NAMED = 5
"""Sources that an error names of each kind; with thousands, the first ones tell which kind they are."""


def argument_limit(stack: int) -> int:
    """Bytes of arguments and environment that a program may be given under a soft stack limit: a quarter of it."""
    return (
        MAX_ARGUMENT_BYTES if stack == resource.RLIM_INFINITY else max(128 << 10, min(MAX_ARGUMENT_BYTES, stack // 4))
    )


def link_argument_bytes(objects: Iterable[str], environment: int) -> int:
    """Bytes that Linux counts at a link of objects at these paths, beside an environment that takes so many.

    setuptools gives the compiler an argument list, without a shell and without a response file.
    """
    return sum(map(_taken, objects)) + environment + _OTHER_ARGUMENTS


def _taken(text: str) -> int:
    """Bytes that an argument or a variable takes: its own, a zero byte, a pointer."""
    return len(os.fsencode(text)) + 1 + _POINTER


def raise_link_limit(process: int, objects: Iterable[str], environ: Mapping[str, str]) -> None:
    """See to it that a process may start a linker with the paths of all objects; raises its stack limit if need be.

    Raises `BuildError` if it may not be raised so far.
    """
    paths = list(objects)
    needed = link_argument_bytes(paths, sum(_taken(f"{name}={value}") for name, value in environ.items()))
    soft, hard = resource.prlimit(process, resource.RLIMIT_STACK)
    if needed <= argument_limit(soft):
        return
    allowed = argument_limit(hard)
    if needed > allowed:
        raise BuildError(
            "the link has more arguments than Linux lets a program have",
            f"{len(paths)} objects take {needed} bytes, {allowed} are allowed with the stack limit that can be set",
            "raise the hard limit of the stack (ulimit -H -s), or use a shorter --cache path",
        )
    resource.prlimit(process, resource.RLIMIT_STACK, (4 * allowed, hard))


def require_supported_archs(hipcc: str, archs: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raises `BuildError` if the compiler cannot make code for an arch; its driver knows without compiling."""
    refused = []
    for arch in archs:
        command = [hipcc, "-x", "hip", f"--offload-arch={arch}", "-###", "-c", os.devnull, "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=dict(environ))
        # anything else that is wrong with it is told better by the compile itself
        said = [line for line in done.stderr.splitlines() if "error:" in line and arch in line]
        if said:
            refused.append(f"{arch} ({said[0]})")
    if refused:
        hint = "use an image with a newer ROCm, or leave the arch out"
        raise BuildError("the compiler cannot make code for", "; ".join(refused), hint)


def require_planned_sources(found: Collection[str], planned: Collection[str]) -> None:
    """Raises `BuildError` if the kernels of this build are not those that were planned; nothing planned fits all.

    Shards, forecasts and archives count on the planned names, so a kernel too few would end as a library that lacks it.
    """
    missing, surplus = sorted({*planned} - {*found}), sorted({*found} - {*planned})
    if not planned or not (missing or surplus):
        return
    told = [
        f"{len(names)} {kind}: {', '.join(names[:_MOST_NAMED])}{', ...' * (len(names) > _MOST_NAMED)}"
        for kind, names in (("missing", missing), ("surplus", surplus))
        if names
    ]
    raise BuildError(
        "the build compiles other kernels than `wheelfactory plan` lists",
        "; ".join(told),
        "unset what chooses kernels (OPT_DIM), in the image too; else remove census/ in the cache, and plan again",
    )


def require_matching_key(key: SetKey, given: Sequence[Mapping[str, Any]]) -> None:
    """Raises `BuildError` if none of the archives handed over, told by the parts of their keys, is of this key."""
    if any(dict(parts) == dict(key.parts) for parts in given):
        return
    nearest = min((diff_key_parts(key.parts, parts) for parts in given), key=len)
    raise BuildError(
        "kernel archive of another key",
        "; ".join(nearest),
        "compile the kernels with this compiler and these sources: wheelfactory kernels",
    )
