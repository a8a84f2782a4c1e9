"""What a gate is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wheelfactory.cell import Backend, Cell
from wheelfactory.executor import Place
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import BuildRecord
from wheelfactory.workshop import Workshop


@dataclass(frozen=True)
class Subject:
    """A wheel to verify, the record in it, the cell it must be, and what is known and at hand."""

    wheel: Wheel
    record: BuildRecord
    cell: Cell
    workshop: Workshop
    elsewhere: Callable[[Cell], Place | None] = lambda _: None
    """Gives where the torch of a CK cell is, if that is not this machine; asked only by gates that need it."""


@dataclass(frozen=True)
class Gate:
    """One question to a wheel. A gate that runs code of the wheel does so only if no gate before it refused."""

    name: str
    check: Callable[[Subject], GateResult]
    required: bool = True
    runs_code: bool = False
    backends: frozenset[Backend] = frozenset(Backend)
    alone: bool = False
    """Whether it looks at nothing but the wheel and the matrix, so that it can be asked again anywhere."""
