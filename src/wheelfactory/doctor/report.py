"""Combine a machine, its diagnoses and a site's wheels into one report: the offered wheels and the exit code."""

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

# the version of the JSON document. Increase it when a key is renamed, removed or changes its meaning
FORMAT = 2


@dataclass(frozen=True)
class Offer:
    """A wheel and the commands that install it, or that install the torch it needs."""

    wheel: PublishedWheel
    pip: InstallCommand
    uv: InstallCommand
    installed: bool = False
    """Whether this version is installed and imports already."""
    condition: str = ""
    """How to hide the GPUs that the wheel has no code for; empty if not needed (`find_condition`)."""
    unverified: str = ""
    """Why the wheel is not verified; empty if it is."""


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

    @property
    def blockers(self) -> tuple[str, ...]:
        """Why the commands cannot run unchanged, each with its remedy."""
        python, found = self.machine.python, []
        if python.externally_managed:
            found.append(": ".join(externally_managed_error(python, torch=self.machine.torch is not None)))
        if python.pip is None:
            found.append(f"this Python has no pip: use the uv command, or first run `{python.executable} -m ensurepip`")
        return tuple(found)

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
    site: str | None,
    wheels: Sequence[PublishedWheel],
    fit: Fit,
    facts: DoctorFacts,
) -> DoctorReport:
    """Return the report for a machine and the manifest at `site`, whose `wheels` were matched as `fit`."""
    needed = find_missing_dependencies(wheels, machine)
    best: dict[Backend, PublishedWheel] = {}
    for wheel in fit.fitting:
        assert wheel.label  # find_fit keeps only wheels with a label
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
    # with address and digest of every file, pip and uv have nothing to resolve and cannot install another file
    installed, python = machine.flash_attn, machine.python.executable
    again = installed is not None and installed.version == wheel.version
    wheels = [(one.project, url_with_sha256(one.url, one.sha256)) for one in (*needed, wheel)]
    return Offer(
        wheel,
        pip_for(python).install_without_dependencies(*(address for _, address in wheels), again=again),
        # uv accepts a file: URL with a digest only in the form "name @ URL" (uv 0.13.8)
        uv_for(python).install_without_dependencies(
            *(f"{project} @ {address}" for project, address in wheels), again=again
        ),
        installed=installed is not None and again and not installed.error,
        condition=find_condition(wheel, machine),
        unverified=_unverified(wheel, facts),
    )


def _torch_offer(wheel: PublishedWheel, cell: Cell, machine: Machine, facts: DoctorFacts) -> Offer:
    # the local version matters: pip would accept an installed CUDA build for a plain torch==2.9.1
    requirement, index = f"torch=={cell.torch}+rocm{cell.rocm}", f"{TORCH_INDEX}/rocm{cell.rocm}"
    pip, uv = (one(machine.python.executable).install_torch(requirement, index) for one in (pip_for, uv_for))
    return Offer(wheel, pip, uv, unverified=_unverified(wheel, facts))


def _unverified(wheel: PublishedWheel, facts: DoctorFacts) -> str:
    return why_unverified(facts.required_gates[str(wheel.label.backend)], wheel.gates) if wheel.label else ""


def externally_managed_error(python: Python, *, torch: bool = True) -> tuple[str, str]:
    """Return why nothing can be installed into an externally managed Python (PEP 668), and the remedy.

    `torch`: whether that Python has a torch, which the new environment should then see.
    """
    environment = f"{python.executable} -m venv {'--system-site-packages ' * torch}flash-attn-env"
    kind = "an environment that sees its torch" if torch else "an environment"
    return (
        f"the Linux distribution manages {python.executable}, so pip refuses to install into it (PEP 668)",
        f"create {kind} with `{environment}`, then run the doctor with --python flash-attn-env/bin/python",
    )


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
                "unverified": offer.unverified or None,
            }
            for offer in report.offers
        ],
        "near_misses": [
            {**_wheel_json(miss.wheel), "reasons": list(miss.reasons)} for miss in (fit.near_misses if fit else ())
        ],
        "torch": _named("wheel", report.torch),
        "fallback": _named("filename", report.fallback),
        "blockers": list(report.blockers),
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
