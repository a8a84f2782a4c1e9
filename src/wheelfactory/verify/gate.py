"""The types of gates and of the subjects that they check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from wheelfactory.build.executor import HERE, GateRunner
from wheelfactory.build.products import PinnedProject, make_plain_wheel, make_products, pin_product, pin_release
from wheelfactory.core.cell import FALLBACK_NAME, FLASH_ATTN_FALLBACK, Backend, Cell
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.verify.cell_python import CellPython, find_cell_python
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.read import BuildRecord, Wheel


@dataclass(frozen=True)
class WheelSubject:
    """A wheel to verify, of any kind."""

    wheel: Wheel
    context: Context
    runner: GateRunner = HERE
    """Runs the code of the wheel."""
    may_build: bool = True
    """Whether to make a plain build if the cache has none; if not, a missing one is an error."""

    @property
    def matrix(self) -> Matrix:
        """The matrix of the command."""
        return self.context.matrix

    @property
    def cache(self) -> Path:
        """The cache folder."""
        return self.context.cache


@dataclass(frozen=True, kw_only=True)
class Subject(WheelSubject):
    """A wheel to verify, its build record, and the cell that it must match."""

    record: BuildRecord
    cell: Cell
    archives: Path | None = None
    """The folder of kernel archives that a CK wheel must be linked from; None to look for its kernels in the cache."""

    @property
    def plain(self) -> Wheel:
        """The plain wheel of the release. Raises the errors of `pin_release` and `make_plain_wheel`."""
        release = pin_release(self.cell.flash_attn, self.context)
        return make_plain_wheel(release, self.cache, may_build=self.may_build)

    @property
    def required(self) -> tuple[PinnedProject, ...]:
        """The products that the wheel requires, as this checkout pins them. Raises the errors of `pin_product`."""
        return tuple(pin_product(name, self.context) for name in self.cell.requires)

    def wheels(self) -> tuple[Path, ...]:
        """The wheel, and those of the products that it requires. Raises the errors of `make_wheel`."""
        return (self.wheel.path, *make_products(self.cell.requires, self.context))

    @cached_property
    def python(self) -> CellPython | None:
        """The Python of the cell, with its torch (`find_cell_python`)."""
        return find_cell_python(self.cell, self.wheel.path, self.runner, self.context)

    @property
    def triton(self) -> str:
        """The Triton version of the cell's torch."""
        return self.matrix.torch[self.cell.torch].triton


@dataclass(frozen=True, kw_only=True)
class ProductSubject(WheelSubject):
    """A wheel of a product to verify, and the sources that it must be built from."""

    project: PinnedProject

    @property
    def plain(self) -> Wheel:
        """The plain wheel of the sources. Raises the errors of `make_plain_wheel`."""
        return make_plain_wheel(self.project, self.cache, may_build=self.may_build)

    def wheels(self) -> tuple[Path, ...]:
        """The wheel, and those of the products that it requires. Raises the errors of `make_wheel`."""
        required = [FALLBACK_NAME] if self.project.name == FLASH_ATTN_FALLBACK else []
        return (self.wheel.path, *make_products(required, self.context))


AnySubject = TypeVar("AnySubject", bound=WheelSubject)


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
