"""A machine -> what is wrong with it and with the flash-attn that it has, the weightiest first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from wheelfactory.doctor.access import about_access, about_code
from wheelfactory.doctor.diagnosis import Diagnosis, uninstall
from wheelfactory.doctor.facts import Facts
from wheelfactory.doctor.loading import beside, cuda_build, explain_error, leftover, leftovers, missing_requirement
from wheelfactory.doctor.machine import Installed, Machine
from wheelfactory.doctor.origin import names_cuda, shown
from wheelfactory.doctor.torches import about_pair, about_torch
from wheelfactory.doctor.triton import about_triton

_REQUIRED_ELSEWHERE = re.compile(r"torch$|triton")
"""What other diagnoses are about."""


def diagnose(machine: Machine, facts: Facts) -> tuple[Diagnosis, ...]:
    """All that is wrong; empty for a machine on which flash-attn works, or has nothing against it."""
    return tuple(dict.fromkeys(_diagnoses(machine, facts)))  # what an error told may be seen in the files too


def _diagnoses(machine: Machine, facts: Facts) -> Iterator[Diagnosis]:
    installed = machine.installed
    torch = list(about_torch(machine))
    yield from torch
    if installed:
        explained = None if torch else explain_error(machine, installed, facts)
        if explained:
            yield explained
        if names_cuda(installed) and (explained is None or explained.name != "built for CUDA"):
            yield cuda_build(installed)
        yield from about_pair(machine, installed)
        yield from about_code(machine, installed)
    yield from about_access(machine)
    if installed:
        yield from _about_packages(machine, installed)
        yield from about_triton(machine, installed, facts)


def _about_packages(machine: Machine, installed: Installed) -> Iterator[Diagnosis]:
    for path in leftovers(installed):
        yield leftover(installed, path)
    here = installed.others if installed.error else beside(installed)
    if here:
        what = f"beside {shown(installed)} in {installed.location} there is {' and '.join(here)}"
        again = f"{uninstall(machine, 'flash-attn')} (once for each), then install one of them again"
        yield Diagnosis("two flash-attn", what, again)
    if installed.shadow:
        folder = shlex.quote(installed.shadow)
        what = f"{folder} has a folder flash_attn: Python started there takes that, not {shown(installed)}"
        yield Diagnosis("another folder flash_attn", what, "cd to another folder")
    for name in installed.missing:
        if not _REQUIRED_ELSEWHERE.search(name):
            yield missing_requirement(machine, installed, name)
