"""A wheel that fits -> the commands that install exactly it, and what stands in their way; pure.

A wheel is named by its address and digest, with ``--no-deps``: nothing is chosen, so nothing else can be taken, and
torch is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from wheelfactory.core.cell import Cell
from wheelfactory.core.installer import Command, pip_of, uv_of, with_digest
from wheelfactory.doctor.diagnosis import TORCH_INDEX
from wheelfactory.doctor.machine import Machine, Python
from wheelfactory.doctor.wheels import Wheel


def pip_command(python: Python, wheels: Sequence[Wheel], *, again: bool = False) -> Command:
    """With the pip of that Python; `again` for a release that is installed and must be replaced by itself."""
    return pip_of(python.executable).exactly(*(with_digest(wheel.url, wheel.sha256) for wheel in wheels), again=again)


def uv_command(python: Python, wheels: Sequence[Wheel], *, again: bool = False) -> Command:
    """The same with uv, which takes a ``file:`` address with a digest only after a name (uv 0.13.8)."""
    named = (f"{wheel.project} @ {with_digest(wheel.url, wheel.sha256)}" for wheel in wheels)
    return uv_of(python.executable).exactly(*named, again=again)


def torch_command(python: Python, cell: Cell, *, uv: bool = False) -> Command:
    """What installs the torch of a cell; with its local version, which a CUDA build that is there cannot satisfy."""
    installer = uv_of(python.executable) if uv else pip_of(python.executable)
    requirement, index = f"torch=={cell.torch}+rocm{cell.rocm}", f"{TORCH_INDEX}/rocm{cell.rocm}"
    return (*installer.install, requirement, installer.only_index, index)


def hindrances(machine: Machine) -> tuple[str, ...]:
    """Why the commands cannot be run as they are, each with what to do about it."""
    python, found = machine.python, []
    if python.managed:
        found.append(": ".join(managed_trouble(python, torch=machine.torch is not None)))
    if python.pip is None:
        found.append(f"this Python has no pip: use the uv line, or first `{python.executable} -m ensurepip`")
    return tuple(found)


def managed_trouble(python: Python, *, torch: bool = True) -> tuple[str, str]:
    """Why nothing is installed into a Python that its distribution owns (PEP 668), and what to do; `torch`: it has one.

    Where a wheel fits, it has.
    """
    environment = f"{python.executable} -m venv {'--system-site-packages ' * torch}flash-attn-env"
    named = "an environment that sees its torch" if torch else "an environment"
    return (
        f"the distribution owns {python.executable}, and pip installs nothing into it (PEP 668)",
        f"make {named}, `{environment}`, and examine --python flash-attn-env/bin/python",
    )
