"""What a gate looks at."""

from __future__ import annotations

from dataclasses import dataclass

from wheelfactory.cell import Cell
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
