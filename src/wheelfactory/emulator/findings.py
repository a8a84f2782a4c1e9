"""What an execution reports: accesses that a GPU would hide, code that is not modelled, and which emulator it was."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


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


def emulator_id() -> str:
    """Return an id of the emulator that changes with its sources, and with the reader of code objects that it uses."""
    folder = Path(__file__).parent
    files = sorted([*folder.glob("*.py"), *(folder.parent / "wheel" / "elf").glob("*.py")])
    digests = (hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return f"emulator sha256:{hashlib.sha256(''.join(digests).encode()).hexdigest()}"
