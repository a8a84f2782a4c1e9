"""Systems and Pythons that no wheel for AMD GPUs can serve: one cause and one way out each."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.core.cell import name_python
from wheelfactory.core.published import version_key
from wheelfactory.doctor.diagnosis import Diagnosis
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.machine import Machine, find_major_minor

_GLIBC = "2.28"
"""The oldest glibc that PyTorch's torch for ROCm supports: its wheels are manylinux_2_28."""


def check_system(machine: Machine, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Yield why neither torch for ROCm nor a wheel can run here; nothing on Linux with a torch for ROCm."""
    python = machine.python
    if python.system == "Windows":
        remedy = "install WSL (`wsl --install`) and AMD's ROCm for WSL, then run the doctor there"
        yield Diagnosis("Windows", "the wheels are for Linux, and this is Windows", remedy)
    elif python.system == "Darwin":
        yield Diagnosis("macOS", "a Mac has no ROCm", "use a Linux machine with an AMD GPU")
    elif machine.torch is None or machine.torch.hip is None:
        yield from _check_python(machine, facts)


def _check_python(machine: Machine, facts: DoctorFacts) -> Iterator[Diagnosis]:
    python, pythons = machine.python, facts.support.axes["python"]
    newest, oldest = pythons[0], pythons[-1]
    way = f"use CPython {oldest} to {newest}"
    have = find_major_minor(python.version) or (0, 0)
    if python.machine != "x86_64":
        what = f"PyTorch builds torch for ROCm for x86_64 only, and this machine is {python.machine}"
        yield Diagnosis("machine", what, "use an x86_64 machine")
    elif not python.tag.startswith("cp"):
        yield Diagnosis("Python", f"there is no torch for {name_python(python.tag)}", way)
    elif python.tag.endswith("t"):
        what = f"nobody tried flash-attn on free-threaded Python ({name_python(python.tag)})"
        yield Diagnosis("Python", what, f"{way}, not free-threaded")
    elif python.glibc is None:
        what = "this system has no glibc (musl?), which torch for ROCm needs"
        yield Diagnosis("C library", what, "use a distribution with glibc, or a container such as rocm/pytorch")
    elif version_key(python.glibc) < version_key(_GLIBC):
        what = f"torch for ROCm needs glibc {_GLIBC}, and this system has {python.glibc}"
        yield Diagnosis("C library", what, "use a newer Linux distribution, or a container such as rocm/pytorch")
    elif not find_major_minor(oldest) <= have <= find_major_minor(newest):  # type: ignore[operator]
        yield Diagnosis("Python", f"PyTorch has no torch for ROCm for Python {'.'.join(map(str, have))}", way)
