"""Combine a machine, its diagnoses and a site's wheels into one report: the verdict, the steps and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wheelfactory.core.cell import FALLBACK_NAME, Backend, Cell
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.installer import InstallCommand, pip_for, uv_for
from wheelfactory.core.published import why_unverified
from wheelfactory.core.support import Answer
from wheelfactory.doctor.advice import find_answer, find_torch
from wheelfactory.doctor.diagnosis import INSTALL_MATCHING_WHEEL, INSTALL_TORCH, Diagnosis, format_major_minor
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import Fit, dependencies_of, find_missing_dependencies
from wheelfactory.doctor.gpu_match import GpuSupport, gpu_warnings, hide_gpus_hint, judge_gpus, list_visible_gpus
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.manifest_source import ManifestSource
from wheelfactory.doctor.notes import find_notes, find_ways
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.steps import (
    Step,
    Target,
    again_step,
    exact_commands,
    fallback_steps,
    find_target,
    fix_step,
    preparing_steps,
    torch_command,
    torch_step,
    wheel_step,
)
from wheelfactory.doctor.systems import check_system
from wheelfactory.doctor.torch_checks import uses_triton
from wheelfactory.doctor.verdict import Verdict, VerdictKind, Wanted, find_verdict, needs_own_fix


@dataclass(frozen=True)
class Offer:
    """A wheel and the commands that install it, or that install the torch it needs."""

    wheel: PublishedWheel
    pip: InstallCommand
    uv: InstallCommand
    installed: bool = False
    """Whether this version is installed and imports already."""
    condition: str = ""
    """How to hide the GPUs that the wheel has no code for; empty if not needed (`hide_gpus_hint`)."""
    cautions: tuple[str, ...] = ()
    """Why it may still not work (`gpu_warnings`)."""
    unverified: str = ""
    """Why the wheel is not verified; empty if it is."""
    refused: tuple[str, ...] = ()
    """The options for which it raises an error."""


@dataclass(frozen=True)
class DoctorReport:
    """Everything that the doctor reports."""

    machine: Machine
    verdict: Verdict
    diagnoses: tuple[Diagnosis, ...] = ()
    site: str | None = None
    """The address of the manifest, or the given site if its manifest cannot be read; None without a site."""
    fit: Fit | None = None
    """None if no manifest was read."""
    offers: tuple[Offer, ...] = ()
    """The best matching wheel, then the best of the other backend."""
    torch: Offer | None = None
    """The wheel that would match another torch, with the commands that install that torch."""
    fallback: Offer | None = None
    """The pure-PyTorch fallback, if no wheel matches and the installed torch can run the fallback."""
    refused: tuple[str, ...] = ()
    """The options for which the installed flash-attn raises an error; empty for one that does not check its calls."""
    support: tuple[GpuSupport, ...] = ()
    """The answers for each kind of visible GPU."""
    steps: tuple[Step, ...] = ()
    """What to do, in this order; empty if nothing helps, or if nothing is needed."""
    notes: tuple[str, ...] = ()
    """What else matters on this machine, one line each."""

    @property
    def exit_code(self) -> int:
        """`DONE` if flash-attn works or a wheel matches, and no problem is named; otherwise `FAILED`."""
        if self.verdict.kind is VerdictKind.KEEP:
            return DONE
        is_done = bool(self.offers) and self.verdict.kind is VerdictKind.INSTALL
        return DONE if (is_done or self.fit is None) and not self.diagnoses else FAILED


def make_report(
    machine: Machine,
    diagnoses: tuple[Diagnosis, ...],
    source: ManifestSource,
    wheels: Sequence[PublishedWheel],
    fit: Fit,
    facts: DoctorFacts,
    *,
    wanted: Wanted,
    doctor: Sequence[str],
) -> DoctorReport:
    """Return the report for a machine and the manifest of `source`, whose `wheels` were matched as `fit`.

    `wanted`: the wheels that were asked for. `doctor`: the command that runs the doctor with this site.
    """
    unsupported = tuple(check_system(machine, facts))
    verdict = find_verdict(machine, diagnoses, unsupported, fit, wanted, facts)
    if verdict.kind is VerdictKind.CANNOT and unsupported:
        diagnoses, fit = unsupported, replace(fit, fitting=(), with_other_torch=None, measured=None, fallbacks=())
    needed = find_missing_dependencies(wheels, machine)
    best = {wheel.label.backend: wheel for wheel in reversed(fit.fitting) if wheel.label}  # all have one (find_fit)
    other = fit.with_other_torch
    is_dead_end = verdict.kind is VerdictKind.CANNOT and not unsupported
    is_supported = find_answer(machine, facts, wanted.backend) is not Answer.DOES_NOT_WORK
    report = DoctorReport(
        machine,
        verdict,
        diagnoses,
        source.manifest,
        fit,
        tuple(_offer(wheel, needed, machine, facts) for wheel in sorted(best.values(), key=fit.fitting.index)),
        _torch_offer(other, other.cell, machine, facts) if other and other.cell else None,
        _offer(fit.fallbacks[0], (), machine, facts) if fit.fallbacks else None,
        _refused_by_installed(machine, facts),
        judge_gpus(machine, facts),
    )
    site = source.base if source.has_index else ""
    report = replace(report, steps=tuple(_steps(report, needed, site, doctor, facts)))
    notes = (*_notes(report, facts, is_supported=is_dead_end and is_supported), *_measured_note(report, needed))
    return with_remedies(replace(report, notes=notes))


def report_without_site(machine: Machine, diagnoses: tuple[Diagnosis, ...], facts: DoctorFacts) -> DoctorReport:
    """Return the report for a machine alone: its problems, and the torch to install if it has none for its GPUs."""
    refused = _refused_by_installed(machine, facts)
    unsupported = tuple(check_system(machine, facts))
    verdict = find_verdict(machine, diagnoses, unsupported, None, Wanted(), facts)
    diagnoses = unsupported or diagnoses
    report = DoctorReport(machine, verdict, diagnoses, refused=refused, support=judge_gpus(machine, facts))
    has_torch = machine.torch is not None and machine.torch.hip is not None
    torch = None if unsupported else find_torch(machine, facts)
    steps = list(_fixes(diagnoses))
    if torch and not (has_torch and find_answer(machine, facts) is not Answer.DOES_NOT_WORK):
        target = find_target(machine.python)
        steps += [*preparing_steps(target, sees_torch=False), torch_step(target, *torch, machine, facts)]
    report = replace(report, steps=tuple(steps))
    return with_remedies(replace(report, notes=tuple(_notes(report, facts))))


def _notes(report: DoctorReport, facts: DoctorFacts, *, is_supported: bool = False) -> Iterator[str]:
    """Yield the notes of a report; `is_supported`: whether the matrix has a wheel that this site lacks."""
    kind = report.verdict.kind
    if kind is VerdictKind.INSTALL:
        offer = next(filter(None, (*report.offers, report.torch)))
        if offer.condition:  # hides the GPUs that the cautions are about
            yield f"Note: {offer.condition}"
        else:
            yield from (f"Caution: {caution}" for caution in offer.cautions)
        if offer.unverified:
            yield f"Caution: the wheel is not verified ({offer.unverified})"
    elif kind is VerdictKind.KEEP:
        for better in report.offers:
            if not better.installed and better.wheel.label:
                version, backend = better.wheel.version.partition("+")[0], better.wheel.label.backend
                options = f"--flash-attn {version} --backend {backend}"
                yield f"Not needed, but possible: {version} with {backend.display_name} ({options})."
    else:
        offered = FALLBACK_NAME if kind is VerdictKind.CANNOT and report.fallback else None  # the steps install it
        ways = find_ways(report.machine, report.support, facts)
        yield from (way for way in ways if not (offered and offered in way))
        if is_supported and report.fit and report.fit.near_misses:
            yield "It is supported, but not on this site: ask its owner for the wheel (its page has a request form)."
    if kind is VerdictKind.INSTALL and not list_visible_gpus(report.machine):
        yield "No GPU is visible, so it was not checked whether the wheel has code for yours."
    if kind in (VerdictKind.INSTALL, VerdictKind.KEEP):
        yield from find_notes(report.machine, changes_torch=report.torch is not None)


def _measured_note(report: DoctorReport, needed: Sequence[PublishedWheel]) -> Iterator[str]:
    """Yield the note about a wheel for another torch; never where flash-attn works."""
    wheel = report.fit.measured if report.fit else None
    if wheel and wheel.label and report.verdict.kind is not VerdictKind.KEEP:
        wheels = (*dependencies_of(wheel, needed), wheel)
        pip, _ = exact_commands(report.machine.python.executable, wheels, again=False)
        built = f"{wheel.filename} is built with torch {format_major_minor(wheel.label.torch)}"
        what = f"{built}; yours defines all symbols that it needs, and nothing was run"
        yield f"May work, symbols measured: {what}. At your own risk: {shlex.join(pip)}"


def _refused_by_installed(machine: Machine, facts: DoctorFacts) -> tuple[str, ...]:
    installed = machine.flash_attn
    if installed is None or not installed.build_record.get("corrections"):
        return ()
    backend = Backend.TRITON if uses_triton(machine, installed) else Backend.CK
    return facts.find_refused(installed.version, str(backend))


def _steps(
    report: DoctorReport, needed: Sequence[PublishedWheel], site: str, doctor: Sequence[str], facts: DoctorFacts
) -> Iterator[Step]:
    """Yield the remedies, then the steps to the best wheel, with another torch if none matches the installed one."""
    machine, target, kind = report.machine, find_target(report.machine.python), report.verdict.kind
    yield from _fixes(report.diagnoses)
    if kind is VerdictKind.FIX:
        if _is_wheel_next(report):
            yield from preparing_steps(target, sees_torch=True)
            yield _wheel_step(report.offers[0], needed, target, site, machine)
        elif doctor:
            yield again_step(target, doctor)
    elif kind is VerdictKind.INSTALL and report.offers:
        yield from preparing_steps(target, sees_torch=True)
        yield _wheel_step(report.offers[0], needed, target, site, machine)
    elif kind is VerdictKind.INSTALL and report.torch and report.torch.wheel.cell:
        cell = report.torch.wheel.cell
        yield from preparing_steps(target, sees_torch=False)
        yield torch_step(target, cell.torch, cell.rocm, machine, facts)
        yield _wheel_step(report.torch, needed, target, site, machine)
        if doctor:
            yield again_step(target, doctor)
    elif kind is VerdictKind.CANNOT and report.fit and report.fit.fallbacks:
        yield from preparing_steps(target, sees_torch=True)
        yield from fallback_steps(target, report.fit.fallbacks, site)


def _fixes(diagnoses: Sequence[Diagnosis]) -> Iterator[Step]:
    """Yield the remedies that need no site; the verdict says the first problem."""
    own = [one for one in diagnoses if needs_own_fix(one)]
    for number, one in enumerate(own):
        yield fix_step(one.what if number else "", one.remedy)
    for one in diagnoses:
        if own and one.remedy.startswith(INSTALL_TORCH):
            yield fix_step(one.what, "the doctor names the right one when this is done")


def _is_wheel_next(report: DoctorReport) -> bool:
    """Whether a wheel can follow the remedies: torch sees the GPUs, and flash-attn is missing or has to be replaced."""
    torch, again = report.machine.torch, any(INSTALL_MATCHING_WHEEL in one.remedy for one in report.diagnoses)
    sees = torch is not None and bool(torch.sees_gpu)
    return bool(report.offers) and sees and (report.machine.flash_attn is None or again)


def _wheel_step(offer: Offer, needed: Sequence[PublishedWheel], target: Target, site: str, machine: Machine) -> Step:
    again = machine.flash_attn is not None and machine.flash_attn.version == offer.wheel.version
    again = again and not machine.python.externally_managed  # a new environment has nothing to replace
    return wheel_step(target, offer.wheel, dependencies_of(offer.wheel, needed), site, again=again)


def with_remedies(report: DoctorReport) -> DoctorReport:
    """Complete the remedies that depend on the match with the site's wheels."""
    advice = "follow the steps" if report.steps else "no wheel of this site fits"
    if report.fit is None:
        advice = "run the doctor with the address of a site, and it names the wheel"
    torch = "install the torch of the steps" if report.fit is None and report.steps else advice
    diagnoses = (
        replace(one, remedy=one.remedy.replace(INSTALL_MATCHING_WHEEL, advice).replace(INSTALL_TORCH, torch))
        for one in report.diagnoses
    )
    next_step = advice if report.offers else "no wheel of this site fits"
    steps = (replace(step, title=step.title.replace(INSTALL_MATCHING_WHEEL, next_step)) for step in report.steps)
    return replace(report, diagnoses=tuple(diagnoses), steps=tuple(steps))


def _offer(wheel: PublishedWheel, needed: Sequence[PublishedWheel], machine: Machine, facts: DoctorFacts) -> Offer:
    installed = machine.flash_attn
    again = installed is not None and installed.version == wheel.version
    pip, uv = exact_commands(machine.python.executable, (*dependencies_of(wheel, needed), wheel), again=again)
    judged = wheel.label is not None  # the fallback runs on every GPU
    return Offer(
        wheel,
        pip,
        uv,
        installed=installed is not None and again and not installed.error,
        condition=hide_gpus_hint(wheel, machine, facts) if judged else "",
        cautions=tuple(gpu_warnings(wheel, machine, facts)) if judged else (),
        unverified=_unverified(wheel, facts),
        refused=facts.find_refused(wheel.version, str(wheel.label.backend)) if wheel.label else (),
    )


def _torch_offer(wheel: PublishedWheel, cell: Cell, machine: Machine, facts: DoctorFacts) -> Offer:
    installers = (one(machine.python.executable) for one in (pip_for, uv_for))
    pip, uv = (torch_command(one, cell.torch, cell.rocm, machine, facts) for one in installers)
    cautions = tuple(gpu_warnings(wheel, machine, facts))
    return Offer(wheel, pip, uv, cautions=cautions, unverified=_unverified(wheel, facts))


def _unverified(wheel: PublishedWheel, facts: DoctorFacts) -> str:
    return why_unverified(facts.required_gates[str(wheel.label.backend)], wheel.gates) if wheel.label else ""
