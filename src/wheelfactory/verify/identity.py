"""Gate: the name of the file and the build record say what the cell says; what the matrix determines is equal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from wheelfactory.core.cell import Backend
from wheelfactory.verify.gate import FallbackSubject, Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.read import BUILD_RECORD_NAME
from wheelfactory.wheel.repair import manylinux_platforms

_AGAIN = "build the cell again"
_COMMIT = re.compile("commit:[0-9a-f]{40}")


def check_identity(subject: Subject) -> GateResult:
    """Compare name and build record with the cell; reads the wheel only. METADATA and WHEEL are members: `contents`."""
    findings = [*_name(subject), *_platform(subject), *_record(subject)]
    return GateResult.from_findings("identity", findings, subject.cell.id)


def check_fallback_identity(subject: FallbackSubject) -> GateResult:
    """Compare the name with the version of the checkout's sources; there is no label and no build record."""
    name, cure = subject.project.filename, "build it again: `wheelfactory build flash-attention-amd`"
    findings = [*expect("file name", name, subject.wheel.path.name, cure), *_folder(subject)]
    return GateResult.from_findings("identity", findings, name)


def expect(file: str, expected: object, found: object, cure: str) -> Iterator[Finding]:
    """A finding unless both are equal."""
    if expected != found:
        yield Finding(file=file, expected=_text(expected), found=_text(found), remedy=cure)


def _text(value: object) -> str:
    """A value as a person reads it: those of a set in a fixed order, and none of them as a word."""
    if isinstance(value, (tuple, frozenset)):
        return ", ".join(map(str, sorted(value) if isinstance(value, frozenset) else value)) or "nothing"
    return "nothing" if value is None else str(value)


def _name(subject: Subject) -> Iterator[Finding]:
    cell, label = subject.cell, subject.matrix.label(subject.cell)
    abi = "none" if cell.backend is Backend.TRITON else cell.python_tag
    name = f"flash_attn-{cell.flash_attn}+{label}-{cell.python_tag}-{abi}"
    found = subject.wheel.path.name.rpartition("-")[0]
    yield from expect("file name", name, found, "labels and tags are never edited by hand: build the cell again")
    yield from _folder(subject)


def _folder(subject: Subject | FallbackSubject) -> Iterator[Finding]:
    stem = "-".join(subject.wheel.path.name.split("-")[:2])
    cure = "a wheel is never renamed; build it again"
    yield from expect("dist-info", f"{stem}.dist-info", subject.wheel.dist_info, cure)


def _platform(subject: Subject) -> Iterator[Finding]:
    """`any` without compiled code; else one manylinux, no newer than the machine that built it."""
    wheel, built_on, glibc = subject.wheel, subject.record.toolchain.glibc, subject.wheel.glibc
    # as it is written: installers read capitals and repetitions as the same platform
    file, written = wheel.path.name, wheel.path.name.rpartition("-")[2].removesuffix(".whl")
    names = written.split(".")
    if subject.cell.backend is Backend.TRITON:
        yield from expect(file, "any", written, "a Triton wheel holds no compiled code")
    elif glibc is None or len(set(names)) < len(names) or not manylinux_platforms(glibc, "x86_64").issuperset(names):
        yield from expect(file, "one manylinux platform for x86_64", written, "run `wheelfactory repair`")
    elif built_on is None:
        cure = "build the cell again; the platform tag cannot be checked without it"
        yield from expect("build record glibc", "the glibc of the machine that built it", built_on, cure)
    elif glibc > Version(built_on):
        cure = "the platform tag must not be newer than the machine that built it"
        yield from expect(file, f"glibc {built_on} or older", f"glibc {glibc}", cure)


def _record(subject: Subject) -> Iterator[Finding]:
    record, cell, matrix = subject.record, subject.cell, subject.matrix
    written = subject.wheel.read(f"{subject.wheel.dist_info}/{BUILD_RECORD_NAME}")
    if written != record.as_bytes():  # a key that stands twice, or blanks: other readers may read something else
        yield from expect("build record", "as the factory writes it", "the same in another form", _AGAIN)
    yield from expect("build record cell", cell.id, record.cell, "name the cell that the wheel was built for")
    yield from expect("build record label", str(matrix.label(cell)), record.label, _AGAIN)
    pin = matrix.flash_attn[cell.flash_attn].source_pin
    if not pin.startswith("tag:"):
        yield from expect("build record source", pin, record.source, "build it from the sources that the matrix pins")
    elif not _COMMIT.fullmatch(record.source):  # a tag that pins no commit says nothing to compare with
        yield from expect("build record source", "a commit", record.source, _AGAIN)
    cure = "a wheel for some GPUs only is for your own machine; build the cell for all that it promises"
    yield from expect("build record offload_archs", matrix.archs(cell), record.offload_archs, cure)
    if cell.backend is Backend.CK:
        yield from _toolchain(subject)
    else:
        compiled = [name for name, value in record.toolchain if value is not None] + ["kernels"] * bool(record.kernels)
        cure = "a Triton wheel is compiled on the GPU it runs on, so it has none of these: build it again"
        yield from expect("build record toolchain", (), tuple(compiled), cure)


def _toolchain(subject: Subject) -> Iterator[Finding]:
    toolchain, cell = subject.record.toolchain, subject.cell
    abi = subject.matrix.torch[cell.torch].cxx11_abi
    cure = "build against the torch of the cell's index: another C++ ABI is an undefined symbol at import"
    yield from expect("build record cxx11_abi", abi, toolchain.cxx11_abi, cure)
    if not toolchain.matches(cell):
        yield Finding(
            file="build record toolchain",
            expected=f"Python {cell.python}, torch {cell.torch}, HIP {cell.rocm}",
            found=f"Python {toolchain.python}, torch {toolchain.torch}, HIP {toolchain.hip}",
            remedy="build with the Python and the torch of the cell",
        )
