"""The types of gates and of the subjects that they check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from wheelfactory.build.aiter import make_aiter
from wheelfactory.build.executor import BuildHost
from wheelfactory.build.fallback import FallbackProject
from wheelfactory.build.plain import PlainBuilds
from wheelfactory.core.cell import AITER_NAME, Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.matrix.origins import Dependency
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.build_record import BuildRecord
from wheelfactory.wheel.read import Wheel


class HasWheel(Protocol):
    """A subject with a wheel of any kind."""

    @property
    def wheel(self) -> Wheel:
        """The wheel to verify."""


class _WithPlainBuilds:
    """A subject that can be compared with the plain build of its sources."""

    environ: Mapping[str, str]
    cache: Path
    may_build: bool

    @property
    def plain(self) -> PlainBuilds:
        """The plain builds of pinned sources."""
        return PlainBuilds(self.cache, self.environ, self.may_build)


@dataclass(frozen=True)
class Subject(_WithPlainBuilds):
    """A wheel to verify, its build record, and the cell that it must match."""

    wheel: Wheel
    record: BuildRecord
    cell: Cell
    context: Context
    find_gate_host: Callable[[Cell], BuildHost | None] = lambda _: None
    """Returns the build host with the torch of a CK cell, None for this machine."""
    may_build: bool = True
    """Whether to make a plain build if the cache has none; if not, a missing one is an error."""

    @property
    def matrix(self) -> Matrix:
        """The matrix that the cell is from."""
        return self.context.matrix

    @property
    def host(self) -> Host:
        """This machine."""
        return self.context.host

    @property
    def environ(self) -> Mapping[str, str]:  # type: ignore[override]
        """The environment of the command."""
        return self.context.environ

    @property
    def cache(self) -> Path:  # type: ignore[override]
        """The cache folder."""
        return self.context.cache

    @property
    def aiter(self) -> Dependency | None:
        """The pin of aiter if the wheel takes its kernels from it."""
        return self.matrix.dependencies[AITER_NAME] if self.cell.uses_aiter else None

    def kernel_wheels(self) -> tuple[Path, ...]:
        """The wheel of aiter if the wheel takes its kernels from it. Raises the errors of `make_aiter`."""
        return (make_aiter(self.aiter, self.cache, self.environ),) if self.aiter else ()

    @property
    def triton(self) -> str:
        """The Triton version of the cell's torch."""
        return self.matrix.torch[self.cell.torch].triton


@dataclass(frozen=True)
class PureSubject(_WithPlainBuilds):
    """A wheel that is the same for every ROCm and torch, and the pinned sources that it must be built from."""

    wheel: Wheel
    project: FallbackProject | Dependency
    environ: Mapping[str, str]
    cache: Path
    may_build: bool = True

    @property
    def filename(self) -> str:
        """The file name that the wheel must have."""
        return self.project.wheel if isinstance(self.project, Dependency) else self.project.filename


AnySubject = TypeVar("AnySubject", bound=HasWheel)


@dataclass(frozen=True)
class Gate(Generic[AnySubject]):
    """One check of a wheel. A gate with `runs_code` runs the wheel's code, so all earlier gates must have passed."""

    name: str
    check: Callable[[AnySubject], GateResult]
    required: bool = True
    runs_code: bool = False
    backends: frozenset[Backend] = frozenset(Backend)
    on_publish: bool = False
    """Whether it runs again when a wheel is published. The publishing job has a token, so it must run no wheel code."""
    slow: bool = False
    """Whether it takes minutes; ``--quick`` skips it."""
