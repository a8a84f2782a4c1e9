"""What the doctor found -> the lines for a person."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from wheelfactory.core.cell import Backend
from wheelfactory.doctor.fit import format_gpu, list_visible_gpus
from wheelfactory.doctor.machine import InstalledTorch, Machine
from wheelfactory.doctor.report import DoctorReport, Offer

MAX_NEAR_MISSES = 5
_BACKENDS = {Backend.CK: "CK, compiled kernels", Backend.TRITON: "Triton, kernels that are compiled when first used"}


def report_lines(report: DoctorReport) -> Iterator[str]:
    """Everything, in the order in which one asks: what is there, what is wrong, what fits, or why nothing does."""
    yield from machine_lines(report.machine)
    for diagnosis in report.diagnoses:
        yield ""
        yield f"Wrong: {diagnosis.what}"
        # where the line for a better torch follows, a second one would only confuse
        below = report.torch is not None and diagnosis.name in ("no torch", "torch is not for ROCm")
        yield f"Cure:  {'install the torch that is named below' if below else diagnosis.remedy}"
    if report.site is None:
        yield ""
        yield "No site was named, so no wheel is looked for: name the address of one, or a manifest.jsonl."
    elif report.fit is not None:
        yield ""
        yield from _fitting_lines(report) if report.offers else _nothing_fits_lines(report)


def machine_lines(machine: Machine) -> Iterator[str]:
    """What was found out about the machine."""
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
    version = torch.version or "of unknown version"
    if torch.error:
        return f"{version}, does not import: {torch.error}"
    built = f"HIP {torch.hip}" if torch.hip else f"CUDA {torch.cuda}" if torch.cuda else "for the CPU alone"
    abi = {True: ", new C++ ABI", False: ", old C++ ABI", None: ""}[torch.cxx11_abi]
    sees = {True: ", sees a GPU", False: ", sees no GPU", None: ", gave no answer when asked for GPUs"}[torch.sees_gpu]
    return f"{version}, {built}{abi}{sees}"


def _gpu_text(machine: Machine) -> str:
    """Each kind once, with how many there are: ``8 x gfx942 (AMD Instinct MI300X)``."""
    names = [*machine.gpu_names, *[""] * len(machine.gpus)]
    kinds = Counter(map(format_gpu, machine.gpus, names))
    return "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items()) or "none found"


def _fitting_lines(report: DoctorReport) -> Iterator[str]:
    best, *others = report.offers
    if best.installed:
        yield from _wheel_lines("The wheel that fits is installed", best)
    else:
        yield from _wheel_lines("Fits", best)
        yield from _command_lines(best)
        yield from (f"But {text}" for text in report.blockers)
    if best.condition:
        yield f"But {best.condition}"
    if not list_visible_gpus(report.machine):
        yield "No GPU is seen here, so nobody has looked whether it has code for yours."
    for offer in others:
        yield ""
        yield from _wheel_lines("Also fits", offer)
        yield from _command_lines(offer)
        if offer.condition:
            yield f"But {offer.condition}"


def _wheel_lines(heading: str, offer: Offer) -> Iterator[str]:
    wheel = offer.wheel
    assert wheel.label  # dependencies are not offered
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


def _nothing_fits_lines(report: DoctorReport) -> Iterator[str]:
    assert report.fit  # there would be no site
    misses = report.fit.near_misses
    if report.torch:
        yield f"No wheel fits. {report.torch.wheel.filename} does with the torch that this installs:"
        yield from [f"  {report.torch.unverified}"] if report.torch.unverified else []
        yield from _command_lines(report.torch)
        yield from (f"But {text}" for text in report.blockers)
        yield ""
        yield "The nearest, and why they do not fit:"
    else:
        yield "No wheel fits. The nearest, and why they do not:" if misses else "There is no such wheel at all."
    for miss in misses[:MAX_NEAR_MISSES]:
        yield f"  {miss.wheel.filename}"
        yield from (f"    {reason}" for reason in miss.reasons)
    if len(misses) > MAX_NEAR_MISSES:
        yield f"  and {len(misses) - MAX_NEAR_MISSES} more, which --json lists"
    if report.fallback:
        yield ""
        yield "Without a wheel: the same functions in pure PyTorch, for any GPU that your torch runs on."
        yield from _command_lines(report.fallback)
        if not report.torch:  # with it they are said above
            yield from (f"But {text}" for text in report.blockers)
