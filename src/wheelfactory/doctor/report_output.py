"""Render a `DoctorReport`: as lines of text, the verdict first and the details only if asked for, or as JSON.

docs/reference/doctor.md lists the keys of the JSON document.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from wheelfactory.core.cell import AITER_NAME, Backend
from wheelfactory.core.errors import FactoryError
from wheelfactory.doctor.aiter_checks import format_aiter
from wheelfactory.doctor.gpu_match import format_gpu
from wheelfactory.doctor.machine import InstalledTorch, Machine
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.report import DoctorReport, Offer
from wheelfactory.doctor.steps import Step
from wheelfactory.doctor.verdict import VerdictKind

MAX_NEAR_MISSES = 5
_BACKENDS = {Backend.CK: "CK, kernels compiled ahead of time", Backend.TRITON: "Triton, kernels compiled on first use"}


def report_lines(report: DoctorReport, *, verbose: bool = False) -> Iterator[str]:
    """Yield the verdict, the steps and what else matters; with `verbose` also the machine and the wheels.

    No line is wrapped, so that a command can be copied from a terminal of any width.
    """
    yield report.verdict.line
    if report.verdict.kind is VerdictKind.INSTALL or report.fit is None:
        yield from (f"Problem: {one.what}" for one in report.diagnoses if one.what not in report.verdict.line)
    yield from _step_lines(report.steps)
    yield from report.notes
    if report.fit is None and report.site is None and report.verdict.kind is not VerdictKind.KEEP:
        yield "To find a wheel, pass the address of a site, or a manifest.jsonl."
    if verbose:
        yield from _details(report)


def _step_lines(steps: Sequence[Step]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        if step.title:
            yield f"{number}. {step.title}" if len(steps) > 1 else step.title
        yield from (f"{'     ' if len(steps) > 1 else '  '}{command}" for command in step.commands)


def _details(report: DoctorReport) -> Iterator[str]:
    """Yield the machine, the problems and the wheels of the site."""
    yield ""
    yield from machine_lines(report.machine)
    if report.refused:
        yield f"Options     flash-attn raises an error for {'; '.join(report.refused)}"
    yield from (f"Support     {support}" for support in report.support)
    for diagnosis in report.diagnoses:
        yield f"Problem     {diagnosis.what}: {diagnosis.remedy}"
    for offer in report.offers:
        yield ""
        yield from _wheel_lines("Installed" if offer.installed else "Matching wheel", offer)
    misses = report.fit.near_misses if report.fit else ()
    if misses and not report.offers:
        yield ""
        yield "Closest wheels and why they do not match:"
        for miss in misses[:MAX_NEAR_MISSES]:
            yield f"  {miss.wheel.filename}: {'; '.join(miss.reasons)}"


def machine_lines(machine: Machine) -> Iterator[str]:
    """Yield one line for each component that the doctor examined."""
    python, installed = machine.python, machine.flash_attn
    library = f"glibc {python.glibc}" if python.glibc else "no glibc"
    inside = f", in {machine.container}" if machine.container else ""
    yield f"Python      {python.version} ({python.tag}), {python.executable}"
    yield f"System      {python.system} {python.machine}, {library}{inside}"
    yield f"torch       {_torch_text(machine.torch)}"
    yield f"ROCm        {machine.rocm or 'none found'}{f' in {machine.rocm_path}' if machine.rocm_path else ''}"
    yield f"GPU         {_gpu_text(machine)}"
    state = f"does not import: {installed.error}" if installed and installed.error else "imports"
    yield f"flash-attn  {f'{installed.version}, {state}' if installed else 'not installed'}"
    if AITER_NAME in machine.packages:
        yield f"aiter       {format_aiter(machine.packages[AITER_NAME])}"
    for name, value in machine.environ.items():
        yield f"{name}={shlex.quote(value)}"


def _torch_text(torch: InstalledTorch | None) -> str:
    if torch is None:
        return "none"
    version = torch.version or "unknown version"
    if torch.error:
        return f"{version}, does not import: {torch.error}"
    built = f"HIP {torch.hip}" if torch.hip else f"CUDA {torch.cuda}" if torch.cuda else "CPU only"
    abi = {True: ", new C++ ABI", False: ", old C++ ABI", None: ""}[torch.cxx11_abi]
    sees = {True: ", sees a GPU", False: ", sees no GPU", None: ", GPU query failed"}[torch.sees_gpu]
    return f"{version}, {built}{abi}{sees}"


def _gpu_text(machine: Machine) -> str:
    """List each GPU type once with its count: ``8 x gfx942 (AMD Instinct MI300X)``.

    Those that torch reports count where the driver's list cannot be read, as in some containers.
    """
    names = [*machine.gpu_names, *[""] * len(machine.gpus)]
    listed = machine.gpus or (machine.torch.archs if machine.torch else ())
    kinds = Counter(map(format_gpu, listed, [*names, *[""] * len(listed)]))
    return "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items()) or "none found"


def _wheel_lines(heading: str, offer: Offer) -> Iterator[str]:
    wheel = offer.wheel
    yield f"{heading}: {wheel.filename}"
    yield f"  {_BACKENDS[wheel.built.backend]}; {wheel.size / 1e6:.1f} MB; for {' '.join(wheel.archs) or 'any GPU'}"
    yield from (f"  Caution: {caution}" for caution in offer.cautions)
    if offer.condition:
        yield f"  Note: {offer.condition}"
    if offer.refused and not offer.installed:
        yield f"  raises an error for: {'; '.join(offer.refused)}"
    yield f"  {offer.unverified or 'verified'}"
    outcomes: dict[str, list[str]] = {}
    for gate, status in wheel.gates:
        outcomes.setdefault(status, []).append(gate)
    yield from (f"  checks {status}: {', '.join(gates)}" for status, gates in outcomes.items())
    if wheel.verified_on:
        yield f"  {'tested' if offer.unverified else 'verified'} on {', '.join(wheel.verified_on)}"


# the version of the JSON document. Increase it when a key is renamed, removed or changes its meaning
FORMAT = 4


def as_json(report: DoctorReport, error: FactoryError | None = None) -> dict[str, object]:
    """Return the document; `error` is why the manifest could not be read."""
    misses = report.fit.near_misses if report.fit else ()
    return {
        "format": FORMAT,
        "machine": asdict(report.machine),
        "verdict": {"kind": str(report.verdict.kind), "line": report.verdict.line},
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
        "near_misses": [{**_wheel_json(miss.wheel), "reasons": list(miss.reasons)} for miss in misses],
        "torch": _named("wheel", report.torch),
        "fallback": _named("filename", report.fallback),
        "refused_options": list(report.refused),
        "support": [asdict(support) for support in report.support],
        "steps": [asdict(step) for step in report.steps],
        "notes": list(report.notes),
        "error": {"what": error.what, "which": error.which, "hint": error.hint} if error else None,
        "exit_code": error.exit_code if error else report.exit_code,
    }


def _named(key: str, offer: Offer | None) -> dict[str, object] | None:
    return {key: offer.wheel.filename, **_commands_json(offer)} if offer else None


def _commands_json(offer: Offer) -> dict[str, object]:
    return {"pip": shlex.join(offer.pip), "uv": shlex.join(offer.uv)}


def _wheel_json(wheel: PublishedWheel) -> dict[str, object]:
    cell, label = wheel.cell, wheel.label
    same = ("filename", "version", "url", "sha256", "size", "archs", "glibc", "published", "verified_on")
    return {
        **{name: getattr(wheel, name) for name in same},
        "backend": str(label.backend) if label else None,
        "cell": cell.id if cell else None,
        "gates": dict(wheel.gates),
    }
