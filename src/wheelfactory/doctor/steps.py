"""The numbered steps that lead from a machine to a working flash-attn, with the commands for an installer it has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wheelfactory.core.cell import FALLBACK_NAME
from wheelfactory.core.label import FALLBACK_INDEX, index_path
from wheelfactory.core.published import InstallCommand, Installer, pip_for, url_with_sha256, uv_for
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.machine import Machine, Python
from wheelfactory.doctor.published_wheels import PublishedWheel

VENV = "flash-attn-env"
"""The folder of the environment that replaces a Python of the Linux distribution."""

# what the remedies begin with that are commands
_PROGRAMS = ("sudo", "export", "unset", "rm", "uv", "ls", "cd", "conda")


@dataclass(frozen=True)
class Step:
    """One thing to do."""

    title: str
    commands: tuple[str, ...] = ()
    """Lines for a shell."""


@dataclass(frozen=True)
class Target:
    """The Python to install into, which may not exist yet."""

    python: Python
    executable: str
    """Its interpreter after the first steps."""
    has_pip: bool

    @property
    def installer(self) -> Installer:
        """pip if that Python has it, otherwise uv; isolated where pip's configuration adds another index."""
        if not self.has_pip:
            return uv_for(self.executable)
        pip = pip_for(self.executable)
        isolated = ("--isolated",) if self.python.pip_extra else ()
        return replace(pip, install_command=(*pip.install_command, *isolated))


def find_target(python: Python) -> Target:
    """Return where to install: the Python itself, or an environment if the Linux distribution manages it."""
    if python.externally_managed:
        return Target(python, f"{VENV}/bin/python", has_pip=True)
    return Target(python, python.executable, has_pip=python.pip is not None or not python.has_uv)


def preparing_steps(target: Target, *, sees_torch: bool) -> Iterator[Step]:
    """Yield the steps before any installation; `sees_torch`: whether an environment should see the Python's torch."""
    python = target.python
    if python.externally_managed:
        options = ("--system-site-packages",) if sees_torch else ()
        why = "the Linux distribution manages this Python, so pip refuses to install into it"
        yield Step(f"Create an environment ({why}):", (shlex.join((python.executable, "-m", "venv", *options, VENV)),))
    elif python.pip is None and not python.has_uv:
        command = (python.executable, "-m", "ensurepip", "--upgrade")
        yield Step("Install pip, which this Python lacks:", (shlex.join(command),))


def fix_step(title: str, remedy: str) -> Step:
    """Return the step of a remedy, which is a command or says what to do."""
    command, _, rest = remedy.partition(", then ")
    first = command.partition(" ")[0]
    is_command = (first in _PROGRAMS or "/" in first) and not any(part in command for part in ("; ", " ("))
    if is_command:
        after = f", then {rest}" if rest else ""
        return Step(f"{title or 'Run'}{after}:", (command,))
    return Step(f"{title}: {remedy}" if title else f"{remedy[:1].upper()}{remedy[1:]}")


def torch_command(installer: Installer, torch: str, rocm: str, machine: Machine, facts: DoctorFacts) -> InstallCommand:
    """Return the command that installs PyTorch's torch for a ROCm, and torchvision and torchaudio if they are there."""
    # the local version matters: pip would accept an installed CUDA build for a plain torch==2.9.1
    beside = [name for name in ("torchvision", "torchaudio") if name in machine.packages]
    upgrade = ("--upgrade",) if beside else ()
    return installer.install_torch(*upgrade, f"torch=={torch}+rocm{rocm}", *beside, index=facts.indexes[rocm])


def torch_step(target: Target, torch: str, rocm: str, machine: Machine, facts: DoctorFacts) -> Step:
    """Return the step that installs PyTorch's torch for a ROCm."""
    command = torch_command(target.installer, torch, rocm, machine, facts)
    return Step(f"Install torch {torch} for ROCm {rocm}:", (shlex.join(command),))


def wheel_step(target: Target, wheels: Sequence[PublishedWheel], site: str, *, again: bool) -> Step:
    """Return the step that installs the last of some wheels: from the index of `site`, or without one by address.

    The others are its dependencies that the Python lacks. `again`: whether this version is installed already.
    """
    *needed, wheel = wheels
    index, requirement = f"{site}{index_path(wheel.built.index_key)}/", f"flash-attn=={wheel.version}"
    command = target.installer.install_from_index(index, requirement)
    if not site:
        command = exact_commands(target.executable, wheels, again=again)[0 if target.has_pip else 1]
    elif again:  # the index lacks torch, which --force-reinstall would reinstall too
        options = ("--no-deps", target.installer.reinstall_option)
        missing = (f"{one.project}=={one.version}" for one in needed)  # --no-deps would leave them out
        command = target.installer.install_from_index(index, *missing, requirement, options=options)
    return Step("Install the matching wheel:", (shlex.join(command),))


def fallback_steps(target: Target, wheels: Sequence[PublishedWheel], site: str) -> Iterator[Step]:
    """Yield the steps that install the pure-PyTorch fallback, and then the one named flash-attn if it is published.

    They install from the index of `site` that has both, or by address.
    """
    titles = (
        f"Install {FALLBACK_NAME}, the same functions in pure PyTorch, for any GPU that your torch supports:",
        "If a program imports flash_attn, install it by that name too:",
    )
    for number, wheel in enumerate(wheels):
        command = exact_commands(target.executable, (wheel,), again=False)[0 if target.has_pip else 1]
        if site and len(wheels) == len(titles):
            index = f"{site}{index_path(FALLBACK_INDEX)}/"
            command = target.installer.install_from_index(index, wheel.project, options=("--no-deps",))
        yield Step(titles[number], (shlex.join(command),))


def exact_commands(
    python: str, wheels: Sequence[PublishedWheel], *, again: bool
) -> tuple[InstallCommand, InstallCommand]:
    """Return the commands of pip and uv that install exactly these files."""
    # with address and digest of every file, pip and uv have nothing to resolve and cannot install another file
    addresses = [(one.project, url_with_sha256(one.url, one.sha256)) for one in wheels]
    # uv accepts a file: URL with a digest only in the form "name @ URL" (uv 0.13.8)
    named = (f"{project} @ {address}" for project, address in addresses)
    pip = pip_for(python).install_without_dependencies(*(address for _, address in addresses), again=again)
    return pip, uv_for(python).install_without_dependencies(*named, again=again)


def again_steps(target: Target, doctor: Sequence[str]) -> Iterator[Step]:
    """Yield the last step: the doctor's own command `doctor`, if any, for the Python that was installed into."""
    chosen = () if target.executable == target.python.executable else ("--python", target.executable)
    if doctor:
        yield Step("Run the doctor again:", (shlex.join((*doctor, *chosen)),))
