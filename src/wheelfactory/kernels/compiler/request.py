"""Request and result of one compile run, as JSON files, because the compile may run in a container."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.strict import parse_json, parse_record, read_record

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
