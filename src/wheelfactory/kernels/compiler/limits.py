"""Reject a compile or a link that would fail, before it starts."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import resource
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelfactory.core.errors import BuildError
from wheelfactory.core.wrap import shorten_names
from wheelfactory.kernels.compiler.fat_binary import RELOCATABLE, find_offload_form
from wheelfactory.kernels.compiler.key import diff_key_parts
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.wheel.elf.code_object import read_kernel_names, read_registered_names
from wheelfactory.wheel.elf.image import DamagedElfError, ElfImage

# bytes that Linux (4.13 and later) counts for each argument in addition to its text
_POINTER = 8

# bytes reserved for the linker's flags and libraries
_OTHER_ARGUMENTS = 16 << 10

# Linux's maximum for arguments and environment: three quarters of its default stack limit (exec.c)
MAX_ARGUMENT_BYTES = 6 << 20

_RELOCATABLE_FILE = 1
"""The type of an object file. Source: System V ABI, chapter 4."""

# clang defines this symbol in host and device code; older ones define none. The digits are the low half of the MD5 of
# what -cuid= names. Source: clang 19, CodeGenModule.cpp and Cuda.cpp of the driver; objects of it
_COMPILE_ID = re.compile(rb"\0__hip_cuid_([0-9a-f]{1,16})(?=\0)")


def argument_limit(stack: int) -> int:
    """Return the bytes that Linux allows for arguments and environment: a quarter of the soft stack limit."""
    return (
        MAX_ARGUMENT_BYTES if stack == resource.RLIM_INFINITY else max(128 << 10, min(MAX_ARGUMENT_BYTES, stack // 4))
    )


def link_argument_bytes(objects: Iterable[str], environment_bytes: int) -> int:
    """Return the bytes of arguments and environment of a link command with these object paths."""
    # setuptools passes every path as an argument, without a response file
    return sum(map(_argument_bytes, objects)) + environment_bytes + _OTHER_ARGUMENTS


def _argument_bytes(text: str) -> int:
    """Bytes that an argument or a variable takes: its text, a zero byte, a pointer."""
    return len(os.fsencode(text)) + 1 + _POINTER


def increase_stack_limit_for_link(pid: int, objects: Iterable[str], environ: Mapping[str, str]) -> None:
    """Increase the stack limit of a process, if needed, so that it can pass the paths of all objects to a linker.

    Raises `BuildError` if the hard limit is too low.
    """
    paths = list(objects)
    needed = link_argument_bytes(paths, sum(_argument_bytes(f"{name}={value}") for name, value in environ.items()))
    soft, hard = resource.prlimit(pid, resource.RLIMIT_STACK)
    if needed <= argument_limit(soft):
        return
    allowed = argument_limit(hard)
    if needed > allowed:
        which = f"{len(paths)} object paths take {needed} bytes, the hard stack limit allows {allowed}"
        hint = "raise the hard stack limit (ulimit -H -s), or use a shorter --cache path"
        raise BuildError("too many arguments for the linker", which, hint)
    resource.prlimit(pid, resource.RLIMIT_STACK, (4 * allowed, hard))


def require_supported_archs(hipcc: str, archs: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise `BuildError` if the compiler does not support an arch, as its driver reports, so nothing is compiled."""
    refused = []
    for arch in archs:
        command = [hipcc, "-x", "hip", f"--offload-arch={arch}", "-###", "-c", os.devnull, "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=dict(environ))
        # ignore other errors here: the compile itself reports them better
        errors = [line for line in done.stderr.splitlines() if "error:" in line and arch in line]
        if errors:
            refused.append(f"{arch} ({errors[0]})")
    if refused:
        hint = "use an image with a newer ROCm, or remove the arch"
        raise BuildError("unsupported by this compiler", "; ".join(refused), hint)


def require_planned_sources(found: Collection[str], planned: Collection[str]) -> None:
    """Raise `BuildError` if this build does not compile exactly the planned kernels; an empty plan allows any."""
    # shards and archives hold the planned names, so a missing kernel would leave an undefined symbol in the library
    kinds = {"missing": sorted({*planned} - {*found}), "unplanned": sorted({*found} - {*planned})}
    differences = [f"{len(names)} {kind}: {shorten_names(names, 5)}" for kind, names in kinds.items() if names]
    if planned and differences:
        hint = "unset OPT_DIM (also in the image), because it changes which kernels are built"
        hint += "; if it is not set, remove source-lists/ in the cache and retry"
        raise BuildError("this build and `wheelfactory plan` list different kernels", "; ".join(differences), hint)


def adopt_keys(
    keys: Mapping[tuple[str, ...], SetKey], archive_keys: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, ...], SetKey]:
    """Replace each key by the key of an archive that differs only in the compiler's content.

    The same release of a compiler is another file in each distribution. What it compiled can be linked on a newer
    system, as wheels run there; compiled again, it would cost as much as all kernels.
    """

    def without_content(parts: Mapping[str, Any]) -> dict[str, Any]:
        return {**parts, "compiler": {**parts["compiler"], "content": ""}}

    adopted = dict(keys)
    for given in archive_keys:
        key = keys.get(tuple(given["targets"]))
        if key and without_content(key.parts) == without_content(given):
            adopted[tuple(given["targets"])] = SetKey(given, key.sources)
    return adopted


def require_matching_keys(keys: Iterable[SetKey], archive_keys: Sequence[Mapping[str, Any]]) -> None:
    """Raise `BuildError` if there are unpacked archives (the key parts of each) for some targets, and none has the key.

    `keys`: of this compile, one for each list of targets.
    """
    for key in keys:
        parts = [dict(given) for given in archive_keys if given.get("targets") == key.parts["targets"]]
        if parts and dict(key.parts) not in parts:
            nearest = min((diff_key_parts(key.parts, given) for given in parts), key=len)
            hint = "compile the kernels again with this compiler and these sources: wheelfactory kernels SET"
            raise BuildError("the kernel archive was compiled differently", "; ".join(nearest), hint)


def require_one_offload_form(objects: Iterable[Path]) -> None:
    """Raise `BuildError` if these objects hold device code in several forms, or in one that needs a device link.

    Only headers are read.
    """
    # the ordinary linker accepts both: it drops relocatable device code of the new driver, and reports nothing
    by_form = {form: path for path in sorted(objects, reverse=True) if (form := find_offload_form(path))}
    if len(by_form) > 1 or any(form in RELOCATABLE for form in by_form):
        which = "; ".join(f"{path.name}: {form}" for form, path in sorted(by_form.items()))
        hint = "compile kernels and bindings with the same driver option (--offload-new-driver or "
        hint += "--no-offload-new-driver) and with -fno-gpu-rdc: clear the build folder and build again"
        raise BuildError("objects with device code in a form that cannot be linked", which, hint)


def require_object(path: Path, source: str, target: str, comment: str = "") -> None:
    """Raise `DamagedElfError` unless this is an object of host code, or a whole code object of the arch `target`.

    An object that names the source that it was compiled from must name `source`, and its compiler must be `comment`.
    """
    if not path.stat().st_size:
        raise DamagedElfError("an empty file")
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # not in memory: an object can have a gigabyte
    # clang writes its version into the section .comment, lld keeps it
    if data.find(comment.encode()) < 0:
        raise DamagedElfError(f"not made by {comment}")
    if target != HOST:
        read_kernel_names(data, target)
    elif (kind := ElfImage(data).type) != _RELOCATABLE_FILE:
        raise DamagedElfError(f"a file of type {kind}")
    digest = hashlib.md5(source.encode(), usedforsecurity=False).digest()
    expected = f"{int.from_bytes(digest[:8], 'little'):x}"
    if others := {found.decode() for found in _COMPILE_ID.findall(data)} - {expected}:
        raise DamagedElfError(f"compiled from another source: its id is {min(others)}, not {expected}")


def read_device_code(source: str, host: bytes, device: Mapping[str, Path], *, is_guarded: bool) -> dict[str, bytes]:
    """Read the code objects of a source, by arch, which must have exactly the kernels that its host code registers.

    The objects come from a store, which an archive or a worker may have filled. An arch that the guard of a source
    excludes has none of its kernels. Raises `BuildError` for a damaged object, or one of another source.
    """
    hint = "remove it, then run the same command again: it is compiled here"
    try:
        registered = read_registered_names(ElfImage(host))
    except DamagedElfError as error:
        raise BuildError("damaged kernel object", f"{source} for {HOST}: {error}", hint) from None
    code = {arch: path.read_bytes() for arch, path in device.items()}
    for arch, path in device.items():
        try:
            found = frozenset(read_kernel_names(code[arch], arch))
        except DamagedElfError as error:
            raise BuildError("damaged kernel object", f"{path} for {arch}: {error}", hint) from None
        if found != registered and (found or not is_guarded):
            which = min(found ^ registered)[:80]
            raise BuildError("kernel object of another source", f"{path} for {arch}: {which} differs", hint)
    return code
