"""A wheel that fits -> the commands that install exactly it, and what stands in their way; pure.

A wheel is named by its address and digest, with ``--no-deps``: nothing is chosen, so nothing else can be taken, and
torch is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from wheelfactory.core.cell import Cell
from wheelfactory.doctor.diagnosis import TORCH_INDEX
from wheelfactory.doctor.machine import Machine, Python
from wheelfactory.doctor.wheels import Wheel

Command = tuple[str, ...]


def pip_command(python: Python, wheels: Sequence[Wheel], *, again: bool = False) -> Command:
    """With the pip of that Python; `again` for a release that is installed and must be replaced by itself."""
    reinstall = ("--force-reinstall",) if again else ()
    return (python.executable, "-m", "pip", "install", "--no-deps", *reinstall, *map(_exact, wheels))


def uv_command(python: Python, wheels: Sequence[Wheel], *, again: bool = False) -> Command:
    """The same with uv, which takes a ``file:`` address with a digest only after a name (uv 0.13.8)."""
    reinstall = ("--reinstall",) if again else ()
    named = (f"{wheel.project} @ {_exact(wheel)}" for wheel in wheels)
    return ("uv", "pip", "install", "--python", python.executable, "--no-deps", *reinstall, *named)


def _exact(wheel: Wheel) -> str:
    return f"{wheel.url}#sha256={wheel.sha256}"


def torch_command(python: Python, cell: Cell, *, uv: bool = False) -> Command:
    """What installs the torch of a cell; with its local version, which a CUDA build that is there cannot satisfy."""
    requirement, index = f"torch=={cell.torch}+rocm{cell.rocm}", f"{TORCH_INDEX}/rocm{cell.rocm}"
    if uv:
        return ("uv", "pip", "install", "--python", python.executable, requirement, "--default-index", index)
    return (python.executable, "-m", "pip", "install", requirement, "--index-url", index)


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
