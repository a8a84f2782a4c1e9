"""What a gate is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from wheelfactory.build.executor import BuildHost
from wheelfactory.build.fallback import FallbackProject
from wheelfactory.build.plain import PlainBuilds
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Matrix
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.build_record import BuildRecord
from wheelfactory.wheel.read import Wheel


class HasWheel(Protocol):
    """What has a wheel to verify, whatever it must be."""

    @property
    def wheel(self) -> Wheel:
        """It."""


@dataclass(frozen=True)
class Subject:
    """A wheel to verify, the record in it, the cell it must be, and what is known and at hand."""

    wheel: Wheel
    record: BuildRecord
    cell: Cell
    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    cache: Path
    find_gate_host: Callable[[Cell], BuildHost | None] = lambda _: None
    """Gives where the torch of a CK cell is, if that is not this machine; asked only by gates that need it."""
    may_build: bool = True
    """Whether a plain build to compare with may be made; else one must be kept."""

    @property
    def plain(self) -> PlainBuilds:
        """The plain builds of pinned sources."""
        return PlainBuilds(self.cache, self.environ, self.may_build)

    @property
    def triton(self) -> str:
        """The version of Triton that belongs to the torch of the cell."""
        return self.matrix.torch[self.cell.torch].triton


@dataclass(frozen=True)
class FallbackSubject:
    """A wheel to verify that is of no cell, and the sources that it must be made from."""

    wheel: Wheel
    project: FallbackProject
    environ: Mapping[str, str]
    cache: Path
    may_build: bool = True

    @property
    def plain(self) -> PlainBuilds:
        """The plain builds of pinned sources."""
        return PlainBuilds(self.cache, self.environ, self.may_build)


AnySubject = TypeVar("AnySubject", bound=HasWheel)


@dataclass(frozen=True)
class Gate(Generic[AnySubject]):
    """One question to a wheel. A gate that runs code of the wheel does so only if no gate before it refused."""

    name: str
    check: Callable[[AnySubject], GateResult]
    required: bool = True
    runs_code: bool = False
    backends: frozenset[Backend] = frozenset(Backend)
    on_publish: bool = False
    """Whether it runs nothing of the wheel, so that it can be asked again where a wheel is published."""
    slow: bool = False
    """Whether it takes minutes; ``--quick`` leaves these out."""
