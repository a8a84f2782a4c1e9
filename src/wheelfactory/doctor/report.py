"""A machine, its diagnoses and the wheels of a site -> one report: what is offered, and how the command ends."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import DONE, FAILED, FactoryError
from wheelfactory.core.installer import InstallCommand, pip_for, url_with_sha256, uv_for
from wheelfactory.core.verified import why_unverified
from wheelfactory.doctor.diagnosis import TORCH_INDEX, Diagnosis
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import Fit, find_condition, find_missing_dependencies
from wheelfactory.doctor.machine import Machine, Python
from wheelfactory.doctor.published_wheels import PublishedWheel

FORMAT = 1
"""Of the JSON; grows when a key changes its meaning or goes."""


@dataclass(frozen=True)
class Offer:
    """A wheel, and the commands that bring it about: that install it, or the torch that it needs."""

    wheel: PublishedWheel
    pip: InstallCommand
    uv: InstallCommand
    installed: bool = False
    """Whether that very wheel is installed and works, so that nothing is to be done."""
    condition: str = ""
    """What must be done before a program uses it, on a machine some of whose GPUs it is not for."""
    unverified: str = ""
    """Why the wheel is not verified; empty if it is."""


@dataclass(frozen=True)
class DoctorReport:
    """All that the doctor has to say."""

    machine: Machine
    diagnoses: tuple[Diagnosis, ...] = ()
    site: str | None = None
    """The address of the manifest, or what was named where that could not be read; None if nothing was."""
    fit: Fit | None = None
    """None if no manifest was read."""
    offers: tuple[Offer, ...] = ()
    """The best wheel that fits, and the best of the other backend."""
    torch: Offer | None = None
    """The wheel that another torch would make fit, with the commands that install that torch."""
    fallback: Offer | None = None
    """Where no wheel fits: what computes without one, if the site has it and the torch that is there can run it."""

    @property
    def blockers(self) -> tuple[str, ...]:
        """Why the commands cannot be run as they are, each with what to do about it."""
        python, found = self.machine.python, []
        if python.externally_managed:
            found.append(": ".join(externally_managed_error(python, torch=self.machine.torch is not None)))
        if python.pip is None:
            found.append(f"this Python has no pip: use the uv line, or first `{python.executable} -m ensurepip`")
        return tuple(found)

    @property
    def exit_code(self) -> int:
        """By what is installed: whether nothing is wrong with it. With nothing installed: whether a wheel fits.

        Where no site was named either, whether nothing is wrong with the machine.
        """
        if self.machine.flash_attn or self.fit is None:
            return FAILED if self.diagnoses else DONE
        return DONE if self.offers else FAILED


def make_report(
    machine: Machine,
    diagnoses: tuple[Diagnosis, ...],
    site: str | None,
    wheels: Sequence[PublishedWheel],
    fit: Fit,
    facts: DoctorFacts,
) -> DoctorReport:
    """The report of a machine and the wheels of the manifest at `site`, of which `fit` says which are for it."""
    needed = find_missing_dependencies(wheels, machine)
    best: dict[Backend, PublishedWheel] = {}
    for wheel in fit.fitting:
        assert wheel.label  # what fits is judged by it
        best.setdefault(wheel.label.backend, wheel)
    other, fallback = fit.with_other_torch, fit.fallback
    return DoctorReport(
        machine,
        diagnoses,
        site,
        fit,
        tuple(_offer(wheel, needed, machine, facts) for wheel in best.values()),
        _torch_offer(other, other.cell, machine, facts) if other and other.cell else None,
        _offer(fallback, (), machine, facts) if fallback else None,
    )


def _offer(wheel: PublishedWheel, needed: Sequence[PublishedWheel], machine: Machine, facts: DoctorFacts) -> Offer:
    """A wheel is named by its address and digest: nothing is chosen, so nothing else can be taken."""
    installed, python = machine.flash_attn, machine.python.executable
    again = installed is not None and installed.version == wheel.version
    wheels = [(one.project, url_with_sha256(one.url, one.sha256)) for one in (*needed, wheel)]
    return Offer(
        wheel,
        pip_for(python).install_without_dependencies(*(address for _, address in wheels), again=again),
        # uv takes a file: address with a digest only after a name (uv 0.13.8)
        uv_for(python).install_without_dependencies(
            *(f"{project} @ {address}" for project, address in wheels), again=again
        ),
        installed=installed is not None and again and not installed.error,
        condition=find_condition(wheel, machine),
        unverified=_unverified(wheel, facts),
    )


def _torch_offer(wheel: PublishedWheel, cell: Cell, machine: Machine, facts: DoctorFacts) -> Offer:
    """The torch of a cell with its local version, which a CUDA build that is there cannot satisfy."""
    requirement, index = f"torch=={cell.torch}+rocm{cell.rocm}", f"{TORCH_INDEX}/rocm{cell.rocm}"
    pip, uv = (one(machine.python.executable).install_torch(requirement, index) for one in (pip_for, uv_for))
    return Offer(wheel, pip, uv, unverified=_unverified(wheel, facts))


def _unverified(wheel: PublishedWheel, facts: DoctorFacts) -> str:
    return why_unverified(facts.required_gates[str(wheel.label.backend)], wheel.gates) if wheel.label else ""


def externally_managed_error(python: Python, *, torch: bool = True) -> tuple[str, str]:
    """Why nothing is installed into a Python that its distribution owns (PEP 668), and what to do; `torch`: it has one.

    Where a wheel fits, it has.
    """
    environment = f"{python.executable} -m venv {'--system-site-packages ' * torch}flash-attn-env"
    named = "an environment that sees its torch" if torch else "an environment"
    return (
        f"the distribution owns {python.executable}, and pip installs nothing into it (PEP 668)",
        f"make {named}, `{environment}`, and examine --python flash-attn-env/bin/python",
    )


def as_json(report: DoctorReport, error: FactoryError | None = None) -> dict[str, object]:
    """Everything for a program; docs/reference/doctor.md lists the keys. `error` is why there is no manifest."""
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
                "unverified": offer.unverified or None,
            }
            for offer in report.offers
        ],
        "near_misses": [
            {**_wheel_json(miss.wheel), "reasons": list(miss.reasons)} for miss in (fit.near_misses if fit else ())
        ],
        "torch": _named("for", report.torch),
        "fallback": _named("filename", report.fallback),
        "hindrances": list(report.blockers),
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
