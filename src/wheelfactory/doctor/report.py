"""Combine a machine, its diagnoses and a site's wheels into one report: the verdict, the steps and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wheelfactory.core.cell import FALLBACK_NAME, Backend
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.published import InstallCommand, pip_for, uv_for, why_unverified
from wheelfactory.core.support import Answer
from wheelfactory.doctor.advice import find_answer, find_notes, find_torch, find_ways
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import Fit
from wheelfactory.doctor.gpu_match import (
    GpuSupport,
    gpu_warnings,
    hide_gpus_hint,
    judge_gpus,
    lacks_code,
    list_visible_gpus,
)
from wheelfactory.doctor.machine import INSTALL_MATCHING_WHEEL, INSTALL_TORCH, Diagnosis, Machine, format_major_minor
from wheelfactory.doctor.published_wheels import ManifestSource, PublishedWheel
from wheelfactory.doctor.steps import (
    Step,
    Target,
    again_steps,
    exact_commands,
    fallback_steps,
    find_target,
    fix_step,
    preparing_steps,
    torch_command,
    torch_step,
    wheel_step,
)
from wheelfactory.doctor.triton_checks import uses_triton
from wheelfactory.doctor.verdict import Verdict, VerdictKind, Wanted, check_system, find_verdict, needs_own_fix


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
    facts: DoctorFacts,
    source: ManifestSource | None = None,
    fit: Fit | None = None,
    wanted: Wanted | None = None,
    doctor: Sequence[str] = (),
) -> DoctorReport:
    """Return the report for a machine and the wheels of a site; without one, only the machine's problems and torch.

    `source`: the manifest, whose wheels were matched as `fit`. `wanted`: the wheels that were asked for. `doctor`: the
    command that runs the doctor with this site.
    """
    unsupported, wanted = tuple(check_system(machine, facts, fit)), wanted or Wanted()
    verdict = find_verdict(machine, diagnoses, unsupported, fit, wanted, facts)
    is_dead_end = fit is not None and verdict.kind is VerdictKind.CANNOT and not lacks_code(machine)
    if unsupported and verdict.kind is VerdictKind.CANNOT:
        is_dead_end, diagnoses = False, unsupported
        fit = fit and replace(fit, fitting=(), with_other_torch=None, measured=None, fallbacks=())
    report = DoctorReport(machine, verdict, diagnoses, source.manifest if source else None, fit)
    report = replace(report, refused=_refused_by_installed(machine, facts), support=judge_gpus(machine, facts))
    if fit:
        best = {wheel.built.backend: wheel for wheel in reversed(fit.fitting)}
        report = replace(
            report,
            offers=tuple(_offer(wheel, fit, machine, facts) for wheel in sorted(best.values(), key=fit.fitting.index)),
            torch=_torch_offer(fit.with_other_torch, machine, facts) if fit.with_other_torch else None,
            fallback=_offer(fit.fallbacks[0], fit, machine, facts) if fit.fallbacks else None,
        )
    report = replace(report, steps=tuple(_steps(report, source, doctor, facts)))
    is_supported = is_dead_end and find_answer(machine, facts, wanted.backend) is not Answer.DOES_NOT_WORK
    return with_remedies(replace(report, notes=tuple(_notes(report, facts, is_supported=is_supported))))


def _notes(report: DoctorReport, facts: DoctorFacts, *, is_supported: bool) -> Iterator[str]:
    """Yield the notes of a report; `is_supported`: whether the matrix has a wheel that this site lacks."""
    kind, machine, fit = report.verdict.kind, report.machine, report.fit
    if kind is VerdictKind.INSTALL:
        yield from _offer_notes(next(filter(None, (*report.offers, report.torch))))
        if not list_visible_gpus(machine):
            yield "No GPU is visible, so it was not checked whether the wheel has code for yours."
    elif kind is VerdictKind.KEEP:
        for better in report.offers:
            if not better.installed:
                version, backend = better.wheel.version.partition("+")[0], better.wheel.built.backend
                options = f"--flash-attn {version} --backend {backend}"
                yield f"Not needed, but possible: {version} with {backend.display_name} ({options})."
    else:
        offered = kind is VerdictKind.CANNOT and report.fallback  # the steps install it
        ways = find_ways(machine, report.support, facts)
        yield from (way for way in ways if not (offered and FALLBACK_NAME in way))
        if is_supported and fit and fit.near_misses:
            yield "It is supported, but not on this site: ask its owner for the wheel (its page has a request form)."
    if kind in (VerdictKind.INSTALL, VerdictKind.KEEP):
        yield from find_notes(machine, facts, changes_torch=report.torch is not None)
    if fit and fit.measured and kind is not VerdictKind.KEEP:
        yield _measured_note(machine, fit, fit.measured)


def _offer_notes(offer: Offer) -> Iterator[str]:
    if offer.condition:  # hides the GPUs that the cautions are about
        yield f"Note: {offer.condition}"
    else:
        yield from (f"Caution: {caution}" for caution in offer.cautions)
    if offer.unverified:
        yield f"Caution: the wheel is not verified ({offer.unverified})"


def _measured_note(machine: Machine, fit: Fit, wheel: PublishedWheel) -> str:
    pip, _ = exact_commands(machine.python.executable, fit.with_dependencies(wheel), again=False)
    built = f"{wheel.filename} is built with torch {format_major_minor(wheel.built.torch)}"
    what = f"{built}; yours defines all symbols that it needs, and nothing was run"
    return f"May work, symbols measured: {what}. At your own risk: {shlex.join(pip)}"


def _refused_by_installed(machine: Machine, facts: DoctorFacts) -> tuple[str, ...]:
    installed = machine.flash_attn
    if installed is None or not installed.build_record.get("corrections"):
        return ()
    backend = Backend.TRITON if uses_triton(machine, installed) else Backend.CK
    return facts.find_refused(installed.version, str(backend))


def _steps(
    report: DoctorReport, source: ManifestSource | None, doctor: Sequence[str], facts: DoctorFacts
) -> Iterator[Step]:
    """Yield the remedies, then the steps to the best wheel, with another torch if none matches the installed one."""
    machine, target, kind, fit = report.machine, find_target(report.machine.python), report.verdict.kind, report.fit
    index = source.base if source and source.has_index else ""
    yield from _fixes(report.diagnoses)
    if fit is None and kind is VerdictKind.FIX and any(map(needs_own_fix, report.diagnoses)):
        yield from again_steps(target, doctor)  # which torch is right can depend on what is fixed first
    elif fit is None:
        yield from _torch_without_site(report, target, facts)
    elif report.offers and (kind is VerdictKind.INSTALL or (kind is VerdictKind.FIX and _is_wheel_next(report))):
        yield from preparing_steps(target, sees_torch=True)
        yield _wheel_step(report.offers[0].wheel, fit, target, index, machine)
    elif kind is VerdictKind.INSTALL and fit.with_other_torch and fit.with_other_torch.cell:
        cell = fit.with_other_torch.cell
        yield from preparing_steps(target, sees_torch=False)
        yield torch_step(target, cell.torch, cell.rocm, machine, facts)
        yield _wheel_step(fit.with_other_torch, fit, target, index, machine)
        yield from again_steps(target, doctor)
    elif kind is VerdictKind.FIX:
        yield from again_steps(target, doctor)
    elif kind is VerdictKind.CANNOT and fit.fallbacks:
        yield from preparing_steps(target, sees_torch=True)
        yield from fallback_steps(target, fit.fallbacks, index)


def _torch_without_site(report: DoctorReport, target: Target, facts: DoctorFacts) -> Iterator[Step]:
    """Yield the steps to a torch for the GPUs, if the installed one is none."""
    machine = report.machine
    has_torch = machine.torch is not None and machine.torch.hip is not None
    works = has_torch and find_answer(machine, facts) is not Answer.DOES_NOT_WORK
    is_unsupported = report.verdict.kind is VerdictKind.CANNOT and bool(report.diagnoses)
    if not works and not is_unsupported and (torch := find_torch(machine, facts)):
        yield from preparing_steps(target, sees_torch=False)
        yield torch_step(target, *torch, machine, facts)


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
    return torch is not None and bool(torch.sees_gpu) and (report.machine.flash_attn is None or again)


def _wheel_step(wheel: PublishedWheel, fit: Fit, target: Target, index: str, machine: Machine) -> Step:
    again = machine.flash_attn is not None and machine.flash_attn.version == wheel.version
    again = again and not machine.python.externally_managed  # a new environment has nothing to replace
    return wheel_step(target, fit.with_dependencies(wheel), index, again=again)


def with_remedies(report: DoctorReport) -> DoctorReport:
    """Complete the remedies that depend on the match with the site's wheels."""
    advice = "follow the steps" if report.steps else "no wheel of this site fits"
    if report.fit is None:
        advice = "run the doctor with the address of a site, and it names the wheel"
    torch = "install the torch of the steps" if report.fit is None and report.steps else advice

    def complete(remedy: str) -> str:
        return remedy.replace(INSTALL_MATCHING_WHEEL, advice).replace(INSTALL_TORCH, torch)

    diagnoses = (replace(one, remedy=complete(one.remedy)) for one in report.diagnoses)
    next_step = advice if report.offers else "no wheel of this site fits"
    steps = (replace(step, title=step.title.replace(INSTALL_MATCHING_WHEEL, next_step)) for step in report.steps)
    return replace(report, diagnoses=tuple(diagnoses), steps=tuple(steps))


def _offer(wheel: PublishedWheel, fit: Fit, machine: Machine, facts: DoctorFacts) -> Offer:
    installed = machine.flash_attn
    again = installed is not None and installed.version == wheel.version
    offer = Offer(wheel, *exact_commands(machine.python.executable, fit.with_dependencies(wheel), again=again))
    if wheel.label is None:  # the fallback runs on every GPU
        return offer
    return replace(
        offer,
        installed=installed is not None and again and not installed.error,
        condition=hide_gpus_hint(wheel, machine, facts),
        cautions=tuple(gpu_warnings(wheel, machine, facts)),
        unverified=_unverified(wheel, facts),
        refused=facts.find_refused(wheel.version, str(wheel.built.backend)),
    )


def _torch_offer(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Offer:
    assert wheel.cell  # find_fit names the torch of a cell
    torch, rocm, python = wheel.cell.torch, wheel.cell.rocm, machine.python.executable
    pip, uv = (torch_command(one(python), torch, rocm, machine, facts) for one in (pip_for, uv_for))
    cautions = tuple(gpu_warnings(wheel, machine, facts))
    return Offer(wheel, pip, uv, cautions=cautions, unverified=_unverified(wheel, facts))


def _unverified(wheel: PublishedWheel, facts: DoctorFacts) -> str:
    return why_unverified(facts.required_gates[str(wheel.built.backend)], wheel.gates)
