"""`Diagnosis`, and the helpers that build its texts and remedy commands."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from wheelfactory.core.published import Installer, pip_for, uv_for
from wheelfactory.doctor.machine import Machine

INSTALL_MATCHING_WHEEL = "install the matching wheel"
"""Part of a remedy; `report` replaces it by what the match with the site's wheels leads to."""

INSTALL_TORCH = "install a torch for ROCm"
"""Like `INSTALL_MATCHING_WHEEL`."""


@dataclass(frozen=True)
class Diagnosis:
    """One problem of a machine or its flash-attn install."""

    name: str
    """The kind of problem, as docs/how-to/mend-an-install.md or fix-a-gpu.md lists it."""
    what: str
    """What the doctor found, and why it does not work."""
    remedy: str = INSTALL_MATCHING_WHEEL
    """The command that fixes it, or what to do if no single command does."""


def choose_installer(machine: Machine) -> Installer:
    """Return pip for the machine's Python, or uv if that Python has no pip."""
    python = machine.python
    return uv_for(python.executable) if python.pip is None else pip_for(python.executable)


def uninstall_command(machine: Machine, *names: str) -> str:
    """Return the shell command that removes packages from the machine's Python."""
    return shlex.join([*choose_installer(machine).uninstall_command, *names])


def debug_command(machine: Machine, *code: str) -> str:
    """Return the shell command that runs lines of Python in the machine's Python, and shows where a crash happens."""
    return shlex.join([machine.python.executable, "-X", "faulthandler", "-c", "; ".join(code)])


def abi_age(*, new: bool | None) -> str:
    """Return ``new`` or ``old``, for a message about a C++ ABI."""
    return "new" if new else "old"
