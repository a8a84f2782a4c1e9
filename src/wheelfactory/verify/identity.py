"""Gate: file name, tags, WHEEL, METADATA, build record and cell all say the same."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name
from packaging.version import Version

from wheelfactory.core.cell import ANY_PYTHON, Backend
from wheelfactory.core.label import Label
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.metadata import NEVER_REQUIRED
from wheelfactory.wheel.read import Wheel


def identity(subject: Subject) -> GateResult:
    """Compare everything a wheel says about itself with its cell; pure, reads the wheel only."""
    findings = [*_name(subject), *_tags(subject), *_metadata(subject), *_record(subject)]
    return GateResult.of("identity", findings, subject.cell.id)


def expect(file: str, expected: object, found: object, cure: str) -> Iterator[Finding]:
    """A finding unless both are equal."""
    if expected != found:
        yield Finding(file=file, expected=_text(expected), found=_text(found), cure=cure)


def _text(value: object) -> str:
    """A value as a person reads it: several in a fixed order, and none of them as a word."""
    if isinstance(value, (list, frozenset)):
        return ", ".join(sorted(map(str, value))) or "nothing"
    return "nothing" if value is None else str(value)


def _name(subject: Subject) -> Iterator[Finding]:
    wheel, cell = subject.wheel, subject.cell
    yield from expect(wheel.path.name, "flash-attn", wheel.name, "this factory makes flash-attn wheels")
    yield from expect(
        wheel.path.name,
        f"{cell.flash_attn}+{_label(subject)}",
        str(wheel.version),
        "build the cell again; labels are never edited by hand",
    )
    stem = "-".join(wheel.path.name.split("-")[:2])
    yield from expect("dist-info", f"{stem}.dist-info", wheel.dist_info, "a wheel is never renamed; build it again")


def _tags(subject: Subject) -> Iterator[Finding]:
    wheel, cell = subject.wheel, subject.cell
    abi = "none" if cell.backend is Backend.TRITON else cell.python_tag
    found = frozenset(f"{tag.interpreter}-{tag.abi}" for tag in wheel.tags)
    cure = "build with the Python of the cell"
    yield from expect(wheel.path.name, frozenset({f"{cell.python_tag}-{abi}"}), found, cure)
    yield from expect("WHEEL", frozenset(map(str, wheel.tags)), wheel.wheel_tags, "the name and WHEEL must agree")
    if cell.backend is Backend.TRITON:
        platforms = frozenset(wheel.platform_tags)
        yield from expect(wheel.path.name, frozenset({"any"}), platforms, "a Triton wheel holds no compiled code")
    else:
        yield from _glibc(subject)


def _glibc(subject: Subject) -> Iterator[Finding]:
    wheel, built_on = subject.wheel, subject.record.toolchain.glibc
    glibc = wheel.glibc
    if glibc is None:
        yield Finding(
            file=wheel.path.name,
            expected="a manylinux tag",
            found=", ".join(wheel.platform_tags),
            cure="run `wheelfactory repair`",
        )
    elif built_on is None:
        yield Finding(
            file="build record glibc",
            expected="the glibc of the machine that built it",
            found="nothing",
            cure="build the cell again; the platform tag cannot be checked without it",
        )
    elif glibc > Version(built_on):
        yield Finding(
            file=wheel.path.name,
            expected=f"glibc {built_on} or older",
            found=f"glibc {glibc}",
            cure="the platform tag must not be newer than the machine that built it",
        )


def _metadata(subject: Subject) -> Iterator[Finding]:
    wheel, cell, label = subject.wheel, subject.cell, _label(subject)
    name, version = wheel.metadata["Name"], wheel.metadata["Version"]
    yield from expect("METADATA Name", wheel.name, name and canonicalize_name(str(name)), "build the cell again")
    yield from expect("METADATA Version", f"{cell.flash_attn}+{label}", version, "run `wheelfactory repair`")
    torch = [str(item) for item in wheel.requirements if canonicalize_name(item.name) == "torch"]
    yield from expect(
        "METADATA Requires-Dist torch",
        [label.torch_pin],
        torch,
        "a wheel works with one torch minor only; run `wheelfactory repair`",
    )
    yield from never_required(wheel)
    yield from _python(subject)


def never_required(wheel: Wheel) -> Iterator[Finding]:
    """What a wheel requires that none may."""
    for item in wheel.requirements:
        if canonicalize_name(item.name) in NEVER_REQUIRED:
            yield Finding(
                file="METADATA Requires-Dist",
                expected="no Triton",
                found=str(item),
                cure="ROCm's torch brings its own; pip would put the CUDA one over it",
            )


def _python(subject: Subject) -> Iterator[Finding]:
    python, needs = subject.cell.python, subject.wheel.requires_python
    if python != ANY_PYTHON and not needs.contains(python):
        yield Finding(
            file="METADATA Requires-Python",
            expected=f"one that has {python}",
            found=str(needs),
            cure="this release does not support the Python of the cell",
        )


def _record(subject: Subject) -> Iterator[Finding]:
    record, cell, matrix = subject.record, subject.cell, subject.matrix
    file, again = "build record", "build the cell again"
    yield from expect(f"{file} cell", cell.id, record.cell, "name the cell that the wheel was built for")
    yield from expect(f"{file} label", str(_label(subject)), record.label, again)
    pin = matrix.flash_attn[cell.flash_attn].pin
    if not pin.startswith("tag:"):  # a tag that pins no commit says nothing to compare with
        yield from expect(f"{file} source", pin, record.source, "build it from the sources that the matrix pins")
    cure = "a wheel for some GPUs only is for your own machine; build the cell for all that it promises"
    yield from expect(f"{file} offload_archs", frozenset(matrix.archs(cell)), frozenset(record.offload_archs), cure)
    if cell.backend is Backend.CK:
        yield from _toolchain(subject)


def _toolchain(subject: Subject) -> Iterator[Finding]:
    toolchain, cell = subject.record.toolchain, subject.cell
    abi = subject.matrix.torch[cell.torch].cxx11_abi
    cure = "build against the torch of the cell's index: another C++ ABI is an undefined symbol at import"
    yield from expect("build record cxx11_abi", abi, toolchain.cxx11_abi, cure)
    if not toolchain.fits(cell):
        yield Finding(
            file="build record toolchain",
            expected=f"Python {cell.python}, torch {cell.torch}, HIP {cell.rocm}",
            found=f"Python {toolchain.python}, torch {toolchain.torch}, HIP {toolchain.hip}",
            cure="build with the Python and the torch of the cell",
        )


def _label(subject: Subject) -> Label:
    return subject.matrix.label(subject.cell)
