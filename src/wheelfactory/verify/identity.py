"""Gate: file name, tags, WHEEL, METADATA, build record and cell all say the same."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from wheelfactory.cell import ANY_PYTHON, Backend
from wheelfactory.label import Label
from wheelfactory.repair import glibc_of
from wheelfactory.verify.gate import Finding, GateResult, Subject
from wheelfactory.wheel.metadata import NEVER_REQUIRED, labelled


def identity(subject: Subject) -> GateResult:
    """Compare everything a wheel says about itself with its cell; pure, reads the wheel only."""
    findings = [*_name(subject), *_tags(subject), *_metadata(subject), *_record(subject)]
    return GateResult.of("identity", findings, subject.cell.id)


def _expect(file: str, expected: object, found: object, cure: str) -> Iterator[Finding]:
    if expected != found:
        yield Finding(file=file, expected=str(expected), found=str(found), cure=cure)


def _name(subject: Subject) -> Iterator[Finding]:
    wheel, cell = subject.wheel, subject.cell
    label = _label(subject)
    yield from _expect(wheel.path.name, "flash-attn", wheel.name, "this factory makes flash-attn wheels")
    yield from _expect(
        wheel.path.name,
        f"{cell.flash_attn}+{label}",
        str(wheel.version),
        "build the cell again; labels are never edited by hand",
    )


def _tags(subject: Subject) -> Iterator[Finding]:
    wheel, cell = subject.wheel, subject.cell
    yield from _expect(wheel.path.name, (cell.python_tag,), wheel.python_tags, "build with the Python of the cell")
    yield from _expect("WHEEL", frozenset(map(str, wheel.tags)), wheel.wheel_tags, "the name and WHEEL must agree")
    if cell.backend is Backend.TRITON:
        yield from _expect(wheel.path.name, ("any",), wheel.platform_tags, "a Triton wheel holds no compiled code")
    else:
        glibc, built_on = glibc_of(wheel), subject.record.toolchain.glibc
        if glibc is None:
            yield Finding(
                file=wheel.path.name,
                expected="a manylinux tag",
                found=", ".join(wheel.platform_tags),
                cure="run `wheelfactory repair`",
            )
        elif built_on is None or glibc > Version(built_on):
            yield Finding(
                file=wheel.path.name,
                expected=f"glibc {built_on} or older",
                found=str(glibc),
                cure="the platform tag must not be newer than the machine that built it",
            )


def _metadata(subject: Subject) -> Iterator[Finding]:
    wheel, cell = subject.wheel, subject.cell
    label = _label(subject)
    yield from _expect(
        "METADATA Version",
        labelled(wheel.version, label),
        wheel.metadata["Version"],
        "run `wheelfactory repair`",
    )
    requirements = [Requirement(text) for text in wheel.metadata.get_all("Requires-Dist", [])]
    torch = [str(item.specifier) for item in requirements if canonicalize_name(item.name) == "torch"]
    yield from _expect(
        "METADATA Requires-Dist torch",
        [f"=={label.torch[0]}.{label.torch[1]}.*"],
        torch,
        "a wheel works with one torch minor only; run `wheelfactory repair`",
    )
    for item in requirements:
        if canonicalize_name(item.name) in NEVER_REQUIRED:
            yield Finding(
                file="METADATA Requires-Dist",
                expected="no Triton",
                found=str(item),
                cure="ROCm's torch brings its own; pip would put the CUDA one over it",
            )
    if cell.python != ANY_PYTHON:
        yield from _python(subject, cell.python)


def _python(subject: Subject, python: str) -> Iterator[Finding]:
    needs = str(subject.wheel.metadata["Requires-Python"] or "")
    if not SpecifierSet(needs).contains(python):
        yield Finding(
            file="METADATA Requires-Python",
            expected=f"one that has {python}",
            found=needs,
            cure="this release does not support the Python of the cell",
        )


def _record(subject: Subject) -> Iterator[Finding]:
    record, cell = subject.record, subject.cell
    file = "build record"
    yield from _expect(f"{file} cell", cell.id, record.cell, "name the cell that the wheel was built for")
    yield from _expect(f"{file} label", str(_label(subject)), record.label, "build the cell again")
    unknown = sorted(set(record.offload_archs) - set(subject.workshop.matrix.archs(cell)))
    if unknown or not record.offload_archs:
        yield Finding(
            file=f"{file} offload_archs",
            expected=f"some of {', '.join(subject.workshop.matrix.archs(cell))}",
            found=", ".join(record.offload_archs) or "none",
            cure="build for archs that the release supports",
        )


def _label(subject: Subject) -> Label:
    return Label.of(subject.cell, subject.workshop.matrix.flash_attn[subject.cell.flash_attn].label_commit)
