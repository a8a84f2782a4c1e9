"""May one more compile start? As many as memory allows, never one too many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wheelfactory.kernels.compiler.costs import DRIVER_MIB

RESERVE_MIB = 64
"""Left for ninja and for what is not foreseen."""

UNKNOWN_COMPILER = 8.0
"""How many times the seed's memory a compiler may take that has not been measured yet (llvm/llvm-project#86332). So
the first object of an unknown compiler is compiled with few others beside it, and then its own figure is known."""


@dataclass(frozen=True)
class Running:
    """A compile under way; memory in MiB."""

    predicted_mib: float
    resident_mib: float = 0.0

    @property
    def still_to_come_mib(self) -> float:
        """What it is expected to take beyond what it has."""
        return max(0.0, self.predicted_mib - self.resident_mib)


def may_start(wanted_mib: float, free_mib: float, running: Iterable[Running]) -> bool:
    """Whether a compile that may take `wanted_mib` fits beside those that run; one alone always may."""
    others = list(running)
    if not others:
        return True
    return wanted_mib + RESERVE_MIB <= free_mib - sum(other.still_to_come_mib for other in others)


def expected_mib(seed_mib: float, highest_ratio: float | None) -> float:
    """The memory to allow for a compile, from its prediction and the highest measured over predicted so far."""
    return seed_mib * (UNKNOWN_COMPILER if highest_ratio is None else max(1.0, highest_ratio)) + DRIVER_MIB
