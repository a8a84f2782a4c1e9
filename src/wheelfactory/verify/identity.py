"""Gate: the file name and the build record match the cell and the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from wheelfactory.core.cell import Backend, same_rocm
from wheelfactory.core.label import Label
from wheelfactory.core.published import build_key
from wheelfactory.verify.gate import ProductSubject, Subject, WheelSubject
from wheelfactory.verify.result import Finding, GateResult, show_difference
from wheelfactory.wheel.read import BUILD_RECORD_NAME
from wheelfactory.wheel.repair import manylinux_platforms

_AGAIN = "build the cell again"
_COMMIT = re.compile("commit:[0-9a-f]{40}")
# the local version of torch: by PyTorch, by AMD for users, and in rocm/pytorch images. Source: their wheels and images
_TORCH_BUILD = re.compile(r"rocm(?P<rocm>\d+(\.\d+){1,2})(\.lw)?(\.git[0-9a-f]+)?|git[0-9a-f]+")


def check_identity(subject: Subject) -> GateResult:
    """Compare file name, platform tag and build record with the cell; the gate `contents` checks METADATA and WHEEL."""
    findings = [*_check_name(subject), *_check_platform(subject), *_check_build_record(subject)]
    return GateResult.from_findings("identity", findings, subject.cell.id)


def check_product_identity(subject: ProductSubject) -> GateResult:
    """Compare the file name with the pinned sources; the wheel has no label and no build record."""
    name, remedy = subject.project.wheel, f"build it again: `wheelfactory build {subject.project.name}`"
    findings = [*check_equal("file name", name, subject.wheel.path.name, remedy), *_check_dist_info(subject)]
    return GateResult.from_findings("identity", findings, name)


def check_equal(file: str, expected: object, found: object, remedy: str) -> Iterator[Finding]:
    """Yield a finding unless both values are equal."""
    if expected != found:
        yield Finding(file, _text(expected), _text(found), remedy)


def _text(value: object) -> str:
    """Format a value for a message: sets in a fixed order, None and empty collections as a word."""
    if isinstance(value, (tuple, frozenset)):
        return ", ".join(map(str, sorted(value) if isinstance(value, frozenset) else value)) or "nothing"
    return "nothing" if value is None else str(value)


def _check_name(subject: Subject) -> Iterator[Finding]:
    cell, label = subject.cell, Label.from_cell(subject.cell)
    abi = "none" if cell.backend is Backend.TRITON else cell.python_tag
    parts = (f"flash_attn-{cell.public_version}+{label}", subject.record.build, cell.python_tag, abi)
    name = "-".join(filter(None, parts))
    found = subject.wheel.path.name.rpartition("-")[0]
    yield from check_equal("file name", name, found, "build the cell again: labels and tags must not be edited")
    yield from _check_dist_info(subject)


def _check_dist_info(subject: WheelSubject) -> Iterator[Finding]:
    stem = "-".join(subject.wheel.path.name.split("-")[:2])
    remedy = "build it again: wheels must not be renamed"
    yield from check_equal("dist-info", f"{stem}.dist-info", subject.wheel.dist_info, remedy)


def _check_platform(subject: Subject) -> Iterator[Finding]:
    """Check the platform tag: `any` for Triton, else one manylinux that is no newer than the build machine."""
    wheel, built_on, glibc = subject.wheel, subject.record.toolchain.glibc, subject.wheel.glibc
    # the text of the file name: `platform_tags` hides capitals and repetitions, which installers accept
    file, written = wheel.path.name, wheel.path.name.rpartition("-")[2].removesuffix(".whl")
    names, image = written.split("."), subject.matrix.image(subject.cell)
    if subject.cell.backend is Backend.TRITON:
        yield from check_equal(file, "any", written, "a Triton wheel holds no compiled code")
    elif glibc is None or len(set(names)) < len(names) or not manylinux_platforms(glibc, "x86_64").issuperset(names):
        yield from check_equal(file, "one manylinux platform for x86_64", written, "run `wheelfactory repair`")
    elif built_on is None:
        remedy = "build the cell again: the platform tag cannot be checked without it"
        yield from check_equal("build record glibc", "the glibc of the build machine", built_on, remedy)
    elif glibc > Version(built_on):
        remedy = "run `wheelfactory repair`: the build machine itself could not install it"
        yield from check_equal(file, f"glibc {built_on} or older", f"glibc {glibc}", remedy)
    elif glibc > Version(image.glibc):
        remedy = f"build it in {image.tag}, or on a system that is no newer"
        yield from check_equal(file, f"glibc {image.glibc} or older, as in the cell's image", f"glibc {glibc}", remedy)


def _check_build_record(subject: Subject) -> Iterator[Finding]:
    record, cell, matrix = subject.record, subject.cell, subject.matrix
    written = subject.wheel.read(f"{subject.wheel.dist_info}/{BUILD_RECORD_NAME}")
    if written != record.as_bytes():  # with a repeated key, two JSON parsers can read different records
        yield from check_equal("build record", "JSON as the factory writes it", "other spelling or keys", _AGAIN)
    yield from check_equal("build record cell", cell.id, record.cell, "give the cell that the wheel was built for")
    yield from check_equal("build record label", str(Label.from_cell(cell)), record.label, _AGAIN)
    _, replacement = build_key(subject.wheel.path.name)  # any: only a release knows what it replaces
    yield from check_equal("build record build", matrix.build_tag(cell, replacement), record.build, _AGAIN)
    pin = matrix.flash_attn[cell.flash_attn].source_pin
    if not pin.startswith("tag:"):
        remedy = "build it from the sources that the matrix pins"
        yield from check_equal("build record source", pin, record.source, remedy)
    elif not _COMMIT.fullmatch(record.source):  # a tag names no commit to compare with
        yield from check_equal("build record source", "a commit", record.source, _AGAIN)
    archs = matrix.archs(cell)
    if record.offload_archs != archs:
        remedy = "build the cell for all its archs: a wheel for fewer is for your own machine only"
        yield Finding("build record offload_archs", *show_difference(archs, record.offload_archs), remedy)
    if cell.backend is Backend.CK:
        yield from _check_toolchain(subject)
    else:
        compiled = [name for name, value in record.toolchain if value is not None] + ["kernels"] * bool(record.kernels)
        remedy = "build it again: a Triton wheel has no compiled code, so no toolchain and no kernels"
        yield from check_equal("build record toolchain", (), tuple(compiled), remedy)


def _check_toolchain(subject: Subject) -> Iterator[Finding]:
    toolchain, cell = subject.record.toolchain, subject.cell
    built_for = _TORCH_BUILD.fullmatch((toolchain.torch or "").partition("+")[2])
    if built_for is None or (built_for["rocm"] and not same_rocm(built_for["rocm"], cell.rocm)):
        expected = f"AMD's torch {cell.torch}" if cell.amd_torch else f"torch {cell.torch}+rocm{cell.rocm}"
        yield from check_equal("build record torch", expected, toolchain.torch, "build against the torch of the cell")
    compiler = re.search(r"HIP version: (?P<hip>\d+\.\d+)|clang version ", toolchain.compiler or "")
    hip = ".".join((toolchain.hip or "").split(".")[:2])
    if toolchain.compiler is not None and not compiler:
        yield from check_equal("build record compiler", "hipcc, a clang", toolchain.compiler, _AGAIN)
    elif compiler and compiler["hip"] and compiler["hip"] != hip:
        remedy = "compile with the ROCm that torch was built with"
        yield from check_equal("build record compiler", f"HIP {hip}, as of its torch", compiler[0], remedy)
    abi = subject.matrix.cxx11_abi(cell)
    remedy = "build against the torch of the cell's index: another C++ ABI is an undefined symbol at import"
    yield from check_equal("build record cxx11_abi", abi, toolchain.cxx11_abi, remedy)
    if not toolchain.matches(cell):
        builder = "AMD" if cell.amd_torch else "PyTorch"
        expected = f"Python {cell.python}, {builder}'s torch {cell.torch}, HIP {cell.rocm}"
        found = f"Python {toolchain.python}, torch {toolchain.torch}, HIP {toolchain.hip}"
        yield Finding("build record toolchain", expected, found, "build with the Python and the torch of the cell")
