"""Match wheels against a machine: the matching ones, best first, and all reasons why each other one does not match.

A wheel matches if it is built for the machine's torch (major.minor), the Python, a glibc no newer than the system's
and all visible GPUs (or some, if the others can be hidden). A CK wheel also needs the torch that it was built with, for
its ROCm: PyTorch's or AMD's, or one that defines all its symbols. A Triton wheel needs no ROCm of its own, only a
Triton that compiles its kernels; it also matches if it may work on the GPUs. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from wheelfactory.core.cell import (
    FALLBACK_NAME,
    FLASH_ATTN_FALLBACK,
    FLASH_ATTN_NAME,
    OFFERED_PRODUCTS,
    PRODUCTS,
    Backend,
    Cell,
    major_minor,
    product_name,
    public_version,
)
from wheelfactory.core.label import Label, TorchOrigin
from wheelfactory.core.published import best_first_key, version_key
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.gpu_match import gpu_warnings, hide_gpus_hint, lacks_code
from wheelfactory.doctor.machine import Machine, Python, find_major_minor, format_major_minor
from wheelfactory.doctor.mismatch import other_reasons, torch_reasons
from wheelfactory.doctor.published_wheels import PublishedWheel


@dataclass(frozen=True)
class JudgedWheel:
    """A wheel, and why it does not match."""

    wheel: PublishedWheel
    torch_reasons: tuple[str, ...]
    """The mismatches with the installed torch."""
    other_reasons: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons; empty if it matches."""
        return self.torch_reasons + self.other_reasons


@dataclass(frozen=True)
class Fit:
    """The result of matching a manifest against a machine."""

    fitting: tuple[PublishedWheel, ...]
    """Best first."""
    near_misses: tuple[JudgedWheel, ...]
    """All other wheels, fewest reasons first."""
    needed: tuple[PublishedWheel, ...] = ()
    """The newest wheel of each dependency that the manifest lists and the machine lacks."""
    with_other_torch: PublishedWheel | None = None
    """The best wheel that only needs another torch, if PyTorch has that torch for this Python.

    None if a wheel matches already, or if every wheel has other mismatches too.
    """
    fallbacks: tuple[PublishedWheel, ...] = ()
    """If no wheel matches, and the installed torch can run it: the newest fallback, then the one named flash-attn."""
    measured: PublishedWheel | None = None
    """If no wheel matches: the best that only was built with another torch, if the installed one has its symbols."""
    unfiltered: PublishedWheel | None = None
    """If no wheel of the requested backend and release matches: the best of all others."""

    def with_dependencies(self, wheel: PublishedWheel) -> tuple[PublishedWheel, ...]:
        """Return the missing dependencies of a wheel, then the wheel: not every wheel requires every product."""
        label = wheel.label
        if label is None:  # a fallback requires only torch
            return (wheel,)
        found = (one for one in self.needed if one.project in label.requires or one.project not in PRODUCTS)
        return (*found, wheel)


def find_fit(
    wheels: Sequence[PublishedWheel],
    machine: Machine,
    facts: DoctorFacts,
    *,
    backend: Backend | None = None,
    flash_attn: str | None = None,
) -> Fit:
    """Match the flash-attn wheels, limited to `backend` and the release `flash_attn` if given."""
    judged = [
        JudgedWheel(one, tuple(torch_reasons(one, machine, facts)), tuple(other_reasons(one, machine, facts)))
        for one in _candidates(wheels, backend, flash_attn)
    ]
    fitting = sorted((one.wheel for one in judged if not one.reasons), key=partial(_preference, machine, facts))
    # the sort is stable: the best stays first among equals
    misses = sorted((one for one in judged if one.reasons), key=lambda one: len(one.reasons))
    fit = Fit(tuple(fitting), tuple(misses), _missing_dependencies(wheels, machine))
    if fitting:
        return fit
    only_torch = [one for one in judged if not one.other_reasons]
    possible = [one.wheel for one in only_torch if one.wheel.cell and _has_torch(one.wheel.cell, machine.python, facts)]
    if may_change_torch(machine):
        fit = replace(fit, with_other_torch=min(possible, key=partial(_change, machine, facts), default=None))
    have = format_major_minor(machine.torch_minor) if machine.torch_minor else ""
    loading = (one.wheel for one in only_torch if len(one.reasons) == 1 and have in one.wheel.other_torches)
    fit = replace(fit, measured=next(loading, None))
    others = find_fit(wheels, machine, facts).fitting if backend or flash_attn else ()
    if others:
        return replace(fit, unfiltered=others[0])
    return replace(fit, fallbacks=find_fallbacks(wheels, machine, facts))


def _candidates(
    wheels: Iterable[PublishedWheel], backend: Backend | None, flash_attn: str | None
) -> list[PublishedWheel]:
    """Return the flash-attn wheels that were asked for, the best first."""
    labelled = (wheel for wheel in wheels if wheel.project == FLASH_ATTN_NAME and wheel.label)
    asked = (wheel for wheel in labelled if backend in (None, wheel.built.backend))
    found = [wheel for wheel in asked if flash_attn in (None, public_version(wheel.version), wheel.version)]
    found.sort(key=lambda wheel: wheel.filename, reverse=True)  # the newest Python first among equals
    return sorted(found, key=lambda wheel: best_first_key(*_published(wheel)))


def _published(wheel: PublishedWheel) -> tuple[Label, str, str, datetime]:
    published = datetime.fromisoformat(wheel.published.replace("Z", "+00:00"))
    return wheel.built, wheel.version, wheel.filename, published


def may_change_torch(machine: Machine) -> bool:
    """Whether another torch may be advised: never for AMD's builds, nightlies and own builds for ROCm, nor in WSL."""
    torch = machine.torch
    if machine.container == "wsl":
        return False
    return torch is None or torch.origin is TorchOrigin.PYTORCH or torch.is_for_cuda or not (torch.hip or torch.error)


def _change(machine: Machine, facts: DoctorFacts, wheel: PublishedWheel) -> tuple[object, ...]:
    """Return how far a wheel's torch is from the machine's: first in ROCm, then in torch; previews come last."""
    assert wheel.cell
    have = machine.torch_minor
    rocm = facts.find_rocm(machine.torch) or (find_major_minor(machine.rocm) if machine.rocm else None)
    newest = next(name for name in facts.support.axes["flash-attn"] if "+git" not in name)
    is_old = public_version(wheel.version) != public_version(newest)
    newer = tuple(-number for number in version_key(wheel.cell.torch))
    distances = _distance(wheel.built.rocm, rocm), _distance(wheel.built.torch, have)
    return bool(wheel.built.commit), is_old, *distances, wheel.built.backend is not Backend.CK, newer


def _distance(one: tuple[int, int], other: tuple[int, int] | None) -> int:
    return abs((one[0] - other[0]) * 100 + one[1] - other[1]) if other else 0


def _has_torch(cell: Cell, python: Python, facts: DoctorFacts) -> bool:
    """Whether PyTorch publishes the cell's torch for its ROCm and this Python."""
    have, (oldest, newest) = find_major_minor(python.version), facts.find_torch(major_minor(cell.torch)).pythons
    if cell.amd_torch or cell.rocm not in facts.indexes or not has_rocm_torch(python):
        return False
    is_other = facts.support.is_other_build({"torch": cell.torch, "rocm": cell.rocm})
    return not is_other and have is not None and oldest <= have <= newest


def has_rocm_torch(python: Python) -> bool:
    """Whether PyTorch builds torch for ROCm for this kind of Python and system, in some version."""
    # only for CPython on x86_64 Linux with glibc
    system = (python.system, python.machine) == ("Linux", "x86_64") and python.glibc is not None
    return system and python.tag.startswith("cp")


def _missing_dependencies(wheels: Iterable[PublishedWheel], machine: Machine) -> tuple[PublishedWheel, ...]:
    known = (FLASH_ATTN_NAME, *OFFERED_PRODUCTS, *machine.packages)
    found = (one for one in wheels if one.project not in known and one.yanked is None)
    newest = {one.project: one for one in sorted(found, key=lambda wheel: version_key(wheel.version))}
    return tuple(newest[project] for project in sorted(newest))


def find_fallbacks(
    wheels: Iterable[PublishedWheel], machine: Machine, facts: DoctorFacts
) -> tuple[PublishedWheel, ...]:
    """Return the newest fallback, then the one named flash-attn, if the installed torch imports and can run them."""
    torch = machine.torch
    have = torch.minor if torch and not torch.error else None
    if have is None or have < facts.fallback_torch or lacks_code(machine):
        return ()
    found = sorted((one for one in wheels if one.yanked is None), key=lambda wheel: version_key(wheel.version))
    newest = {product_name(wheel.project, wheel.version): wheel for wheel in found}
    names = (FALLBACK_NAME, FLASH_ATTN_FALLBACK) if FALLBACK_NAME in newest else ()
    return tuple(newest[name] for name in names if name in newest)


def _preference(machine: Machine, facts: DoctorFacts, wheel: PublishedWheel) -> tuple[object, ...]:
    """Return a sort key: releases first, then wheels whose GPUs need no hiding, then wheels that promise all GPUs."""
    promised = not any(True for _ in gpu_warnings(wheel, machine, facts))
    backend, _, *rest = best_first_key(*_published(wheel))
    newest = tuple(-number for number in version_key(wheel.version))
    other_rocm = _distance(wheel.built.rocm, facts.find_rocm(machine.torch))
    key = (backend, newest, other_rocm, *(-number for number in (*wheel.built.torch, *wheel.built.rocm)), *rest)
    return bool(wheel.built.commit), bool(hide_gpus_hint(wheel, machine, facts)), not promised, key
