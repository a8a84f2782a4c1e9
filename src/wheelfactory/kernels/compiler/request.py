"""What the factory asks of the compile, and what it is told afterwards: two JSON files, as one may be in an image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import write_atomic

REQUEST_VARIABLE = "WHEELFACTORY_ORDER"
"""Names the file of the order in the environment of setup.py."""

READY_TO_LINK, SHARD_DONE, TIME_UP, FAILED = "link", "shard", "later", "failed"
"""How a compile ended: all objects are there to link, all of the shard are there, the time was up before, or it failed
or was killed."""


@dataclass(frozen=True)
class CompileRequest:
    """What to compile, and with what. Paths are text, as they are in the image if there is one."""

    ninja: str
    """The real ninja."""
    kernels: str
    """The folder of all stores."""
    ledger: str
    """The file to read measurements from, and to write them to."""
    result_file: str
    """Where to leave the `Report`, or the refusal."""
    jobs: int
    """How many compiles may run at once, until one is killed for want of memory."""
    ccache: str = ""
    """The compiler cache to use; empty for none."""
    ccache_dir: str = ""
    shard: str = ""
    """``I/N`` to compile one shard and link nothing; empty for all and the link."""
    shard_ledger: str = ""
    """The ledger by which shards are cut, the same on every machine; empty for the seed table alone."""
    deadline: float | None = None
    """Seconds since 1970 at which every compile should have ended."""
    archive_keys: tuple[Mapping[str, Any], ...] = ()
    """The keys, as their parts, of the archives that were handed over; one of them must fit."""
    planned_sources: tuple[str, ...] = ()
    """The names of the kernel sources that `wheelfactory plan` lists; empty where it cannot list them."""

    def write(self, path: Path) -> None:
        """Leave the order in a file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> CompileRequest:
        """The order that the environment names."""
        document = json.loads(Path(environ[REQUEST_VARIABLE]).read_text(encoding="utf-8"))
        return cls(**{**document, "given": tuple(document["given"]), "planned": tuple(document["planned"])})

    def write_answer(self, document: Mapping[str, Any]) -> None:
        """Leave where the factory looks what became of this: a `Report`, or what, which and hint of a refusal."""
        write_atomic(Path(self.result_file), json.dumps(document).encode())


@dataclass(frozen=True)
class CompileResult:
    """What became of an order."""

    state: str
    """`LINK`, `SHARD_DONE`, `LATER` or `FAILED`."""
    key: str
    sources: tuple[str, ...]
    """The sources that were wanted: those of the shard, or all."""
    reused: int
    """How many of them the store had."""
    compiled: int
    """How many were compiled."""
    started: float

    def write(self, order: CompileRequest) -> None:
        """Leave the report where the order says."""
        order.write_answer(asdict(self))

    @classmethod
    def read(cls, path: Path) -> CompileResult | None:
        """The report in a file; None if there is none. Raises `BuildError` with the refusal that is there instead."""
        if not path.is_file():
            return None
        document = json.loads(path.read_text(encoding="utf-8"))
        if "what" in document:
            raise BuildError(document["what"], document["which"], document["hint"])
        return cls(**{**document, "names": tuple(document["names"])})
