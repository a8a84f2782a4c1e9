"""Combine a machine, its diagnoses and a site's wheels into one report: the offered wheels and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import DONE, FAILED, FactoryError
from wheelfactory.core.installer import InstallCommand, pip_for, uv_for
from wheelfactory.core.label import index_path
from wheelfactory.core.published import why_unverified
from wheelfactory.core.support import Answer
from wheelfactory.doctor.advice import find_alternatives, find_answer, find_torch
from wheelfactory.doctor.diagnosis import INSTALL_MATCHING_WHEEL, INSTALL_TORCH, Diagnosis
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import Fit, dependencies_of, find_missing_dependencies, has_rocm_torch
from wheelfactory.doctor.gpu_match import GpuSupport, gpu_warnings, hide_gpus_hint, judge_gpus
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.manifest_source import ManifestSource
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.steps import (
    Step,
    Target,
    again_step,
    exact_commands,
    fallback_step,
    find_target,
    preparing_steps,
    torch_command,
    torch_step,
    wheel_step,
)

# the version of the JSON document. Increase it when a key is renamed, removed or changes its meaning
FORMAT = 3


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
    support: tuple[GpuSupport, ...] = ()
    """The answers for each kind of visible GPU."""
    steps: tuple[Step, ...] = ()
    """What to do, in this order; empty if nothing helps, or if nothing is needed."""
    alternatives: tuple[str, ...] = ()
    """Other versions or the other backend, if no wheel can match what is installed."""
    is_supported: bool = False
    """Whether the matrix has a wheel for what is installed, so that a site only lacks it."""
    replaces_other: bool = False
    """True if a working flash-attn from another source is installed: the steps would replace it."""

    @property
    def exit_code(self) -> int:
        """`DONE` if the installed flash-attn has no problem or, without one, if a wheel matches; otherwise `FAILED`.

        Without flash-attn and without a site: `DONE` if the machine has no problem.
        """
        if self.machine.flash_attn or self.fit is None:
            return FAILED if self.diagnoses else DONE
        return DONE if self.offers else FAILED


def make_report(
    machine: Machine,
    diagnoses: tuple[Diagnosis, ...],
    source: ManifestSource,
    wheels: Sequence[PublishedWheel],
    fit: Fit,
    facts: DoctorFacts,
    *,
    backend: Backend | None = None,
    doctor: Sequence[str] = (),
) -> DoctorReport:
    """Return the report for a machine and the manifest of `source`, whose `wheels` were matched as `fit`.

    `backend`: the only one that was asked for. `doctor`: the command that runs the doctor with this site.
    """
    needed = find_missing_dependencies(wheels, machine)
    best: dict[Backend, PublishedWheel] = {}
    for wheel in fit.fitting:
        assert wheel.label  # find_fit keeps only wheels with a label
        best.setdefault(wheel.label.backend, wheel)
    other, fallback, installed = fit.with_other_torch, fit.fallback, machine.flash_attn
    works = installed is not None and not installed.error and not diagnoses
    is_dead_end = not fit.fitting and other is None
    is_supported = find_answer(machine, facts, backend) is not Answer.DOES_NOT_WORK
    report = DoctorReport(
        machine,
        diagnoses,
        source.manifest,
        fit,
        tuple(_offer(wheel, needed, machine, facts) for wheel in best.values()),
        _torch_offer(other, other.cell, machine, facts) if other and other.cell else None,
        _offer(fallback, (), machine, facts) if fallback else None,
        judge_gpus(machine, facts),
        alternatives=find_alternatives(machine, facts, backend) if is_dead_end and not is_supported else (),
        is_supported=is_dead_end and is_supported and has_rocm_torch(machine.python),
        replaces_other=works and installed is not None and installed.version not in {wheel.version for wheel in wheels},
    )
    site = source.base if source.has_index else ""
    report = replace(report, steps=tuple(_steps(report, needed, site, doctor)))
    return with_remedies(report)


def report_without_site(machine: Machine, diagnoses: tuple[Diagnosis, ...], facts: DoctorFacts) -> DoctorReport:
    """Return the report for a machine alone: its problems, and the torch to install if it has none for its GPUs."""
    report = DoctorReport(machine, diagnoses, support=judge_gpus(machine, facts))
    has_torch = machine.torch is not None and machine.torch.hip is not None
    torch = find_torch(machine, facts)
    if torch and not (has_torch and find_answer(machine, facts) is not Answer.DOES_NOT_WORK):
        target = find_target(machine.python)
        steps = (*preparing_steps(target, sees_torch=False), torch_step(target, *torch))
        report = replace(report, steps=steps)
    return with_remedies(report)


def _steps(report: DoctorReport, needed: Sequence[PublishedWheel], site: str, doctor: Sequence[str]) -> Iterator[Step]:
    """Yield the steps to the best wheel, with another torch if no wheel matches the installed one."""
    machine, target = report.machine, find_target(report.machine.python)
    if report.offers and not report.offers[0].installed:
        yield from preparing_steps(target, sees_torch=True)
        yield _wheel_step(report.offers[0], needed, target, site, machine)
    elif report.torch and report.torch.wheel.cell:
        yield from preparing_steps(target, sees_torch=False)
        yield torch_step(target, report.torch.wheel.cell.torch, report.torch.wheel.cell.rocm)
        yield _wheel_step(report.torch, needed, target, site, machine)
        if doctor:
            yield again_step(target, doctor)
    elif report.fallback:
        labels = [miss.wheel.label for miss in (report.fit.near_misses if report.fit else ()) if miss.wheel.label]
        # every index has the fallback
        index = f"{site}{index_path(labels[0].index_key)}/" if site and labels else ""
        yield from preparing_steps(target, sees_torch=True)
        yield fallback_step(target, report.fallback.wheel, index)


def _wheel_step(offer: Offer, needed: Sequence[PublishedWheel], target: Target, site: str, machine: Machine) -> Step:
    again = machine.flash_attn is not None and machine.flash_attn.version == offer.wheel.version
    again = again and not machine.python.externally_managed  # a new environment has nothing to replace
    return wheel_step(target, offer.wheel, dependencies_of(offer.wheel, needed), site, again=again)


def with_remedies(report: DoctorReport) -> DoctorReport:
    """Complete the remedies that depend on the match with the site's wheels."""
    torch = ""
    if report.fit is None:
        advice = "run the doctor with the address of a site, and it names the wheel"
        torch = "install the torch named below" if report.steps else ""
    elif report.offers and report.offers[0].installed:
        advice = "nothing else: the matching wheel is installed"
    elif report.offers or report.torch:
        advice = "follow the steps below"
    else:
        advice = "no wheel of this site fits; what works instead is named below"
    diagnoses = (
        replace(one, remedy=one.remedy.replace(INSTALL_MATCHING_WHEEL, advice).replace(INSTALL_TORCH, torch or advice))
        for one in report.diagnoses
    )
    return replace(report, diagnoses=tuple(diagnoses))


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
    pip, uv = (torch_command(one(machine.python.executable), cell.torch, cell.rocm) for one in (pip_for, uv_for))
    cautions = tuple(gpu_warnings(wheel, machine, facts))
    return Offer(wheel, pip, uv, cautions=cautions, unverified=_unverified(wheel, facts))


def _unverified(wheel: PublishedWheel, facts: DoctorFacts) -> str:
    return why_unverified(facts.required_gates[str(wheel.label.backend)], wheel.gates) if wheel.label else ""


def as_json(report: DoctorReport, error: FactoryError | None = None) -> dict[str, object]:
    """Return the document of ``doctor --json``; `error` is why the manifest could not be read.

    docs/reference/doctor.md lists the keys.
    """
    fit = report.fit
    return {
        "format": FORMAT,
        "machine": asdict(report.machine),
        "diagnoses": [asdict(diagnosis) for diagnosis in report.diagnoses],
        "site": report.site,
        "fitting": [
            {
                **_wheel_json(offer.wheel),
                **_commands_json(offer),
                "installed": offer.installed,
                "condition": offer.condition or None,
                "cautions": list(offer.cautions),
                "unverified": offer.unverified or None,
                "refused_options": list(offer.refused),
            }
            for offer in report.offers
        ],
        "near_misses": [
            {**_wheel_json(miss.wheel), "reasons": list(miss.reasons)} for miss in (fit.near_misses if fit else ())
        ],
        "torch": _named("wheel", report.torch),
        "fallback": _named("filename", report.fallback),
        "support": [asdict(support) for support in report.support],
        "alternatives": list(report.alternatives),
        "steps": [
            {"title": step.title, "commands": [shlex.join(command) for command in step.commands]}
            for step in report.steps
        ],
        "error": {"what": error.what, "which": error.which, "hint": error.hint} if error else None,
        "exit_code": error.exit_code if error else report.exit_code,
    }


def _named(key: str, offer: Offer | None) -> dict[str, object] | None:
    return {key: offer.wheel.filename, **_commands_json(offer)} if offer else None


def _commands_json(offer: Offer) -> dict[str, object]:
    return {"pip": shlex.join(offer.pip), "uv": shlex.join(offer.uv)}


def _wheel_json(wheel: PublishedWheel) -> dict[str, object]:
    cell, label = wheel.cell, wheel.label
    return {
        "filename": wheel.filename,
        "version": wheel.version,
        "url": wheel.url,
        "sha256": wheel.sha256,
        "size": wheel.size,
        "backend": str(label.backend) if label else None,
        "cell": cell.id if cell else None,
        "archs": list(wheel.archs),
        "glibc": wheel.glibc,
        "published": wheel.published,
        "gates": dict(wheel.gates),
        "verified_on": list(wheel.verified_on),
    }
