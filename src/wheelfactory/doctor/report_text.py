"""Render a `DoctorReport` as lines of text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from wheelfactory.core.cell import Backend
from wheelfactory.doctor.fit import format_gpu, list_visible_gpus
from wheelfactory.doctor.machine import InstalledTorch, Machine
from wheelfactory.doctor.report import DoctorReport, Offer

MAX_NEAR_MISSES = 5
_BACKENDS = {Backend.CK: "CK, kernels compiled ahead of time", Backend.TRITON: "Triton, kernels compiled on first use"}


def report_lines(report: DoctorReport) -> Iterator[str]:
    """Yield the machine, the problems, then the matching wheels or why none matches."""
    yield from machine_lines(report.machine)
    for diagnosis in report.diagnoses:
        yield ""
        yield f"Problem: {diagnosis.what}"
        # the commands for the right torch follow below; a second command for a different torch would be confusing
        below = report.torch is not None and diagnosis.name in ("no torch", "torch is not built for ROCm")
        yield f"Fix:     {'install the torch named below' if below else diagnosis.remedy}"
    if report.site is None:
        yield ""
        yield "No site given, so no wheel was looked up. Pass the address of a site or a manifest.jsonl."
    elif report.fit is not None:
        yield ""
        yield from _matching_lines(report) if report.offers else _no_match_lines(report)


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
    """List each GPU type once with its count: ``8 x gfx942 (AMD Instinct MI300X)``."""
    names = [*machine.gpu_names, *[""] * len(machine.gpus)]
    kinds = Counter(map(format_gpu, machine.gpus, names))
    return "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items()) or "none found"


def _matching_lines(report: DoctorReport) -> Iterator[str]:
    best, *others = report.offers
    if best.installed:
        yield from _wheel_lines("Already installed", best)
        yield "  to compare it with what was published:"
        yield f"    wheelfactory verify --from {shlex.quote(str(report.site))} flash-attn"
    else:
        yield from _wheel_lines("Matching wheel", best)
        yield from _command_lines(best)
        yield from (f"Note: {text}" for text in report.blockers)
    if best.condition:
        yield f"Note: {best.condition}"
    if not list_visible_gpus(report.machine):
        yield "No GPU detected, so GPU compatibility was not checked."
    for offer in others:
        yield ""
        yield from _wheel_lines("Other matching wheel", offer)
        yield from _command_lines(offer)
        if offer.condition:
            yield f"Note: {offer.condition}"


def _wheel_lines(heading: str, offer: Offer) -> Iterator[str]:
    wheel = offer.wheel
    assert wheel.label  # make_report never offers a dependency's wheel, so the label is set
    yield f"{heading}: {wheel.filename}"
    yield f"  {_BACKENDS[wheel.label.backend]}; {wheel.size / 1e6:.1f} MB; for {' '.join(wheel.archs) or 'any GPU'}"
    yield f"  {offer.unverified or 'verified'}"
    outcomes: dict[str, list[str]] = {}
    for gate, status in wheel.gates:
        outcomes.setdefault(status, []).append(gate)
    yield from (f"  checks {status}: {', '.join(gates)}" for status, gates in outcomes.items())
    if wheel.verified_on:
        yield f"  {'tested' if offer.unverified else 'verified'} on {', '.join(wheel.verified_on)}"


def _command_lines(offer: Offer) -> Iterator[str]:
    yield f"    {shlex.join(offer.pip)}"
    yield f"    {shlex.join(offer.uv)}"


def _no_match_lines(report: DoctorReport) -> Iterator[str]:
    assert report.fit  # report_lines calls this only with a manifest
    misses = report.fit.near_misses
    if report.torch:
        yield "Your torch does not match any wheel." if report.machine.torch else "This Python has no torch."
        yield "1. Install this torch:"
        yield from _command_lines(report.torch)
        yield from (f"Note: {text}" for text in report.blockers)
        yield f"2. Install this wheel (run the doctor again for its command): {report.torch.wheel.filename}"
        yield from [f"  {report.torch.unverified}"] if report.torch.unverified else []
        yield ""
        yield "Closest wheels and why they do not match:"
    elif misses:
        yield "No matching wheel. Closest wheels and why they do not match:"
    else:
        yield "This site lists no wheels that match your options."
    for miss in misses[:MAX_NEAR_MISSES]:
        yield f"  {miss.wheel.filename}"
        yield from (f"    {reason}" for reason in miss.reasons)
    if len(misses) > MAX_NEAR_MISSES:
        yield f"  and {len(misses) - MAX_NEAR_MISSES} more (listed by --json)"
    if report.fallback:
        yield ""
        yield "Alternative: the same functions in pure PyTorch, for any GPU that your torch supports."
        yield from _command_lines(report.fallback)
        if not report.torch:  # otherwise the notes were already printed above
            yield from (f"Note: {text}" for text in report.blockers)
