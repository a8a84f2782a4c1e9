"""A diagnosis, and the commands that cures are made of."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from wheelfactory.core.cell import major_minor
from wheelfactory.core.installer import Installer, pip_for, uv_for
from wheelfactory.doctor.machine import Machine

TORCH_INDEX = "https://download.pytorch.org/whl"
"""Below it PyTorch has an index for each ROCm: ``rocm6.4``."""

INSTALL_MATCHING_WHEEL = (
    "install the wheel that fits: the doctor prints its line when it is given a site, and --install runs it"
)


@dataclass(frozen=True)
class Diagnosis:
    """Something that is wrong with a machine or its flash-attn."""

    name: str
    """The kind, a few words; docs/how-to/mend-an-install.md has a section of that name."""
    what: str
    """What was seen, and why that does not work."""
    remedy: str
    """The next command, or what to do if there is none."""


def choose_installer(machine: Machine) -> Installer:
    """What installs into the Python of the machine: uv if that has no pip."""
    python = machine.python
    return uv_for(python.executable) if python.pip is None else pip_for(python.executable)


def uninstall_command(machine: Machine, *names: str) -> str:
    """The command that removes packages from the Python of the machine."""
    return shlex.join([*choose_installer(machine).uninstall_command, *names])


def find_torch_index(version: str) -> str | None:
    """The index that a torch such as ``2.9.1+rocm6.4`` is from; None for one that is of another place.

    PyTorch names two numbers, and three for ROCm 6.2.4 alone; AMD's own builds are ``2.9.1+rocm7.1.1.lw.git351ff442``
    and ``2.9.1+rocm7.10.0``, and those of containers name no ROCm.
    """
    rocm = re.search(r"\+rocm(6\.2\.4|\d+\.\d+)$", version)
    return f"{TORCH_INDEX}/rocm{rocm[1]}" if rocm else None


def find_major_minor(version: str) -> tuple[int, int] | None:
    """The first two numbers of a version; None if it has none, as nobody promises what another machine says."""
    return major_minor(version) if re.match(r"\d", version, re.ASCII) else None


def format_major_minor(version: tuple[int, int]) -> str:
    """``2.9`` of (2, 9)."""
    return f"{version[0]}.{version[1]}"


def format_torch(machine: Machine) -> str:
    """The torch of the machine for a sentence: ``torch 2.10.0+rocm7.0``."""
    return f"torch {machine.torch.version or '(without metadata)'}" if machine.torch else "no torch"


def abi_age(*, new: bool | None) -> str:
    """The C++ ABI for a sentence."""
    return "new" if new else "old"
