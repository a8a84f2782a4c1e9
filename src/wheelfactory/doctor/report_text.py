"""Render a `DoctorReport` as lines of text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from wheelfactory.core.cell import AITER_NAME, Backend
from wheelfactory.core.support import name_choice
from wheelfactory.core.wrap import wrap_line
from wheelfactory.doctor.aiter_checks import format_aiter
from wheelfactory.doctor.gpu_match import format_gpu, list_visible_gpus
from wheelfactory.doctor.machine import InstalledTorch, Machine
from wheelfactory.doctor.report import DoctorReport, Offer
from wheelfactory.doctor.steps import Step, command_lines

MAX_NEAR_MISSES = 5
_BACKENDS = {Backend.CK: "CK, kernels compiled ahead of time", Backend.TRITON: "Triton, kernels compiled on first use"}


COMMAND_WIDTH = 100
"""Characters of a line of a command where there is no terminal or a wider one; only an address can be longer."""


def report_lines(report: DoctorReport, width: int | None = None) -> Iterator[str]:
    """Yield the machine, the problems, then the matching wheels or why none matches.

    Sentences are wrapped at `width` characters, commands are broken so that they can be copied; None: no terminal.
    """
    for line in _report_lines(report, min(width or COMMAND_WIDTH, COMMAND_WIDTH)):
        yield from wrap_line(line, width)


def _report_lines(report: DoctorReport, command_width: int) -> Iterator[str]:
    yield from machine_lines(report.machine)
    yield from (f"Support     {support}" for support in report.support)
    for diagnosis in report.diagnoses:
        yield ""
        yield f"Problem: {diagnosis.what}"
        yield f"Fix:     {diagnosis.remedy}"
    if report.fit:
        yield ""
        yield from (_matching_lines if report.offers else _no_match_lines)(report, command_width)
    elif report.site is None:
        yield ""
        yield from _no_site_lines(report, command_width)


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


def _matching_lines(report: DoctorReport, command_width: int) -> Iterator[str]:
    best, *others = report.offers
    if best.installed:
        yield from _wheel_lines("Already installed", best)
        yield "  to compare it with what was published:"
        yield f"    wheelfactory verify --from {shlex.quote(str(report.site))} flash-attn"
    elif report.replaces_other and report.machine.flash_attn:
        yield f"flash-attn {report.machine.flash_attn.version} works. It is not from this site; you can keep it."
        yield ""
        yield from _wheel_lines("To replace it with the matching wheel", best)
        yield from _step_lines(report.steps, command_width)
    else:
        yield from _wheel_lines("Matching wheel", best)
        yield from _step_lines(report.steps, command_width)
    if not list_visible_gpus(report.machine):
        yield "No GPU detected, so GPU compatibility was not checked."
    for offer in others:
        yield ""
        yield from _wheel_lines("Other matching wheel", offer)
        yield "  to install it, run the doctor with " + f"--backend {offer.wheel.label and offer.wheel.label.backend}"


def _wheel_lines(heading: str, offer: Offer) -> Iterator[str]:
    wheel = offer.wheel
    assert wheel.label  # make_report never offers a dependency's wheel, so the label is set
    yield f"{heading}: {wheel.filename}"
    yield f"  {_BACKENDS[wheel.label.backend]}; {wheel.size / 1e6:.1f} MB; for {' '.join(wheel.archs) or 'any GPU'}"
    yield from (f"  Caution: {caution}" for caution in offer.cautions)
    if offer.condition:
        yield f"  Note: {offer.condition}"
    if offer.refused:
        yield f"  raises an error for: {'; '.join(offer.refused)}"
    yield f"  {offer.unverified or 'verified'}"
    outcomes: dict[str, list[str]] = {}
    for gate, status in wheel.gates:
        outcomes.setdefault(status, []).append(gate)
    yield from (f"  checks {status}: {', '.join(gates)}" for status, gates in outcomes.items())
    if wheel.verified_on:
        yield f"  {'tested' if offer.unverified else 'verified'} on {', '.join(wheel.verified_on)}"


def _step_lines(steps: Sequence[Step], command_width: int) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{number}. {step.title}" if len(steps) > 1 else step.title
        for command in step.commands:
            yield from command_lines(command, "     " if len(steps) > 1 else "  ", command_width)


def _no_match_lines(report: DoctorReport, command_width: int) -> Iterator[str]:
    assert report.fit  # report_lines calls this only with a manifest
    misses = report.fit.near_misses
    if report.torch:
        yield from _other_torch_lines(report, report.torch, command_width)
        return
    if not misses:
        yield "This site lists no wheels that match your options."
    else:
        yield "No wheel of this site fits this machine."
    yield from _instead_lines(report)
    yield from _step_lines(report.steps, command_width)
    if misses:
        yield ""
        yield "Closest wheels and why they do not match:"
    for miss in misses[:MAX_NEAR_MISSES]:
        yield f"  {miss.wheel.filename}"
        yield from (f"    {reason}" for reason in miss.reasons)
    if len(misses) > MAX_NEAR_MISSES:
        yield f"  and {len(misses) - MAX_NEAR_MISSES} more (listed by --json)"


def _other_torch_lines(report: DoctorReport, offer: Offer, command_width: int) -> Iterator[str]:
    """Yield the steps to another torch and its wheel, and why the installed torch does not match that wheel."""
    assert report.fit
    why = [reason for miss in report.fit.near_misses if miss.wheel is offer.wheel for reason in miss.reasons]
    if report.machine.torch:
        yield f"Your torch does not match any wheel: {'; '.join(why)}."
    else:
        yield "This Python has no torch."
    yield from (f"  Caution: {caution}" for caution in offer.cautions)
    if offer.unverified:
        yield f"  Caution: {offer.wheel.filename} is not verified ({offer.unverified})"
    yield from _step_lines(report.steps, command_width)


def _instead_lines(report: DoctorReport) -> Iterator[str]:
    """Yield what works instead, one line each."""
    python = report.machine.python
    if python.system == "Windows":
        yield "  wheels are for Linux: install WSL (`wsl --install`) and AMD's ROCm for WSL, then run the doctor there"
    for support in report.support:
        if support.instead:
            yield from (
                f"  {support.arch}: {name_choice('backend', name)} {answer}" for name, answer in support.answers.items()
            )
            yield from (f"  instead, {way}" for way in support.instead)
    yield from (f"  what works instead: {change}" for change in report.alternatives)
    if report.is_supported:
        yield "  it is supported, but not on this site: ask its owner for the wheel (its page has a request form)"


def _no_site_lines(report: DoctorReport, command_width: int) -> Iterator[str]:
    yield "No site given, so no wheel was looked up."
    yield "Pass the address of a site, or a manifest.jsonl, to the doctor."
    yield "The README of wheelfactory says where sites are listed."
    if report.steps:
        yield "The torch to install first:"
        yield from _step_lines(report.steps, command_width)
    yield from _instead_lines(report)
