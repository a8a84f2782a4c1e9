"""What an execution reports: accesses that a GPU would hide, and code that the emulator does not model."""

from __future__ import annotations

from dataclasses import dataclass


class NotRunError(Exception):
    """The kernel uses something that the emulator does not model, so it has no result: neither right nor wrong."""

    def __init__(self, what: str) -> None:
        super().__init__(f"not run: {what}")


@dataclass(frozen=True)
class Finding:
    """An access to memory that a correct kernel does not make."""

    kernel: str
    instruction: str
    line: int
    """The line of the assembly text."""
    problem: str
    """For example ``load outside the buffers`` or ``read of local memory that nobody wrote``."""
    near: str
    """The memory: the nearest buffer, ``local memory`` or ``scratch``."""
    address: int
    """In bytes from the start of `near`, of the first lane; negative in front of it."""

    def __str__(self) -> str:
        return f"{self.kernel}: {self.problem}: {self.instruction} at byte {self.address} of {self.near}"
