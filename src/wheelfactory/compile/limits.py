"""What would stop a compile or a link, found before it starts."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wheelfactory.compile.compiler import untargetable
from wheelfactory.compile.differences import differences
from wheelfactory.compile.errors import RefusedError
from wheelfactory.compile.store import SetKey

_POINTER, _OTHER_ARGUMENTS = 8, 16 * 1024
"""Bytes: what each argument takes beside its text (Linux 4.13 and later), and room for flags and libraries."""

MOST_ARGUMENTS = 6 << 20
"""Bytes that Linux allows for arguments and environment at most: three quarters of its default stack limit (exec.c)."""


def argument_limit(stack: int) -> int:
    """Bytes of arguments and environment that a program may be given under a soft stack limit: a quarter of it."""
    return MOST_ARGUMENTS if stack == resource.RLIM_INFINITY else max(128 << 10, min(MOST_ARGUMENTS, stack // 4))


def allow_link(process: int, objects: Iterable[str], environ: Mapping[str, str]) -> None:
    """See to it that a process may start a linker with the paths of all objects; raises its stack limit if need be.

    Raises `RefusedError` if it may not be raised so far.
    """
    paths = list(objects)
    settings = sum(len(name) + len(value) + 2 + _POINTER for name, value in environ.items())
    needed = sum(len(path) + 1 + _POINTER for path in paths) + settings + _OTHER_ARGUMENTS
    soft, hard = resource.prlimit(process, resource.RLIMIT_STACK)
    if needed <= argument_limit(soft):
        return
    allowed = argument_limit(hard)
    if needed > allowed:
        raise RefusedError(
            "the link has more arguments than Linux lets a program have",
            f"{len(paths)} objects take {needed} bytes, {allowed} are allowed with the stack limit that can be set",
            "raise the hard limit of the stack (ulimit -H -s), or use a shorter --cache path",
        )
    resource.prlimit(process, resource.RLIMIT_STACK, (4 * allowed, hard))


def refuse_untargetable(hipcc: str, archs: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raises `RefusedError` if the compiler cannot make code for an arch."""
    refused = untargetable(hipcc, tuple(archs), environ)
    if refused:
        raise RefusedError(
            "the compiler cannot make code for",
            "; ".join(f"{arch} ({reason})" for arch, reason in refused.items()),
            "use an image with a newer ROCm, or leave the arch out",
        )


def refuse_other_key(key: SetKey, given: Sequence[Mapping[str, Any]]) -> None:
    """Raises `RefusedError` if none of the archives handed over, told by the parts of their keys, is of this key."""
    if any(dict(parts) == dict(key.parts) for parts in given):
        return
    nearest = min((differences(key.parts, parts) for parts in given), key=len)
    raise RefusedError(
        "kernel archive of another key",
        "; ".join(nearest),
        "compile the kernels with this compiler and these sources: wheelfactory kernels",
    )
