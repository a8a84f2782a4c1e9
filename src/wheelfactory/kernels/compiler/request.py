"""Request and result of one compile run, as JSON files, because it may run in a container; and what rejects a request.

A compile or a link that would fail is rejected before it starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.strict import parse_json, parse_record, read_record
from wheelfactory.core.wrap import shorten_names
from wheelfactory.kernels.compiler.hipcc import run_tool
from wheelfactory.kernels.compiler.key import diff_key_parts
from wheelfactory.kernels.compiler.store import SetKey

REQUEST_VARIABLE = "WHEELFACTORY_COMPILE_REQUEST"
"""The environment variable of setup.py that holds the path of the request."""

READY_TO_LINK, SHARD_DONE, TIME_UP, FAILED, SURVEYED = "link", "shard", "time-up", "failed", "surveyed"
"""How a compile ended: all objects exist, all objects of the shard exist, it ran out of time, it failed or was killed,
or it only listed the compiles."""


@dataclass(frozen=True)
class CompileRequest:
    """What to compile, and how. If the compile runs in a container, paths are paths in it."""

    ninja: str
    """The real ninja."""
    kernels: str
    """The folder of all kernel set stores."""
    ledger: str
    """The file to read measurements from and append them to."""
    result_file: str
    """Where to write the `CompileResult`, or the error if the request is refused."""
    jobs: int
    """Maximum parallel compiles. Halved when one is killed for lack of memory."""
    targets: tuple[str, ...] = ()
    """Compile only for these, and do not link: an arch of the build, or ``host``. Empty to compile all and link."""
    shard: str = ""
    """``I/N`` to compile only that part of the sources, with `targets`."""
    shard_ledger: str = ""
    """The ledger to cut shards by, which must be the same on every machine; empty for the seed table alone."""
    deadline: float | None = None
    """Seconds since 1970. A compile that would end later is not started."""
    archive_keys: tuple[Mapping[str, Any], ...] = ()
    """The key parts of each unpacked archive. If there are any for some targets, one must equal this compile's."""
    newer_system: bool = False
    """Whether the archives may be of the same compiler on a system with an older glibc. Then they must be complete."""
    planned_sources: tuple[str, ...] = ()
    """The kernel sources that `wheelfactory plan` lists; empty if it cannot list them."""
    survey: str = ""
    """The file to list the compiles in, instead of running them; empty to run them."""

    def write(self, path: Path) -> None:
        """Write the request to a file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> CompileRequest:
        """Read the request that `REQUEST_VARIABLE` names."""
        return parse_record(cls, Path(environ[REQUEST_VARIABLE]).read_bytes())

    def write_answer(self, document: Mapping[str, Any]) -> None:
        """Write the result file: a `CompileResult`, or what, which and hint of an error."""
        write_atomic(Path(self.result_file), json.dumps(document).encode())


def join_keys(keys: Iterable[str]) -> str:
    """Return the key of all kernels of a build: the sha256 over the keys of its sets, 64 hex digits."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


@dataclass(frozen=True)
class CompileResult:
    """How a compile run ended."""

    state: str
    """`READY_TO_LINK`, `SHARD_DONE`, `TIME_UP`, `FAILED` or `SURVEYED`."""
    keys: tuple[str, ...]
    """Of the sets that the compile reads and fills."""
    sources: tuple[str, ...]
    """The requested sources: of the shard, or all."""
    total: int
    """Objects needed: one per (source, target) pair."""
    reused: int
    """How many of them came from the store."""
    compiled: int
    """Number of objects compiled by this run."""
    started: float
    """Seconds since 1970."""

    @property
    def key(self) -> str:
        """Identifies all kernels of the build (`join_keys`)."""
        return join_keys(self.keys)

    def write(self, request: CompileRequest) -> None:
        """Write the result where the request says."""
        request.write_answer(asdict(self))

    @classmethod
    def read(cls, path: Path) -> CompileResult | None:
        """Read a result; None if there is no file. Raises `BuildError` if the file holds an error instead."""
        if not path.is_file():
            return None
        document = parse_json(path.read_bytes())
        if "what" in document:
            raise BuildError(document["what"], document["which"], document["hint"])
        return read_record(cls, document)


# bytes that Linux (4.13 and later) counts for each argument in addition to its text
_POINTER = 8

# bytes reserved for the linker's flags and libraries
_OTHER_ARGUMENTS = 16 << 10

# Linux's maximum for arguments and environment: three quarters of its default stack limit (exec.c)
MAX_ARGUMENT_BYTES = 6 << 20


def argument_limit(stack: int) -> int:
    """Return the bytes that Linux allows for arguments and environment: a quarter of the soft stack limit."""
    quarter = MAX_ARGUMENT_BYTES if stack == resource.RLIM_INFINITY else stack // 4
    return max(128 << 10, min(MAX_ARGUMENT_BYTES, quarter))


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
        # ignore other errors here: the compile itself reports them better
        errors = [line for line in run_tool(command, environ).stderr.splitlines() if "error:" in line and arch in line]
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
