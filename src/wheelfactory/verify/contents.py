"""Gate: a wheel has exactly the members of a plain build of its pinned sources, plus the declared ones of its cell.

The same code checks all wheels of this factory. It compares the names of the members, their bytes, their compressed
sizes, the archive around them, the layout and the entry point of the extension (CK), and the wheel's size. The changes
from a plain build to a finished wheel are implemented here a second time, on purpose: a gate that called
`wheel.rewrite` would agree with its bugs.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from packaging.utils import canonicalize_name

from wheelfactory.core.cell import Backend
from wheelfactory.core.label import Label
from wheelfactory.verify.gate import ProductSubject, Subject
from wheelfactory.verify.result import MAX_FINDINGS, Finding, GateResult
from wheelfactory.wheel.archive import find_noncanonical
from wheelfactory.wheel.corrections import (
    EXTENSION_MODULE,
    added_members,
    corrected_lines,
    corrected_members,
)
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel

# upstream's requirements that a finished wheel must not have. It pins torch to its minor instead; and ROCm's torch has
# its own Triton, which pip would overwrite with the CUDA one
_REPLACED = frozenset({"torch", "amd-aiter", "triton", "triton-rocm", "pytorch-triton-rocm"})

_REQUIRES = "Requires-Dist: "

_UNUSED_BY_AITER = ("Requires-Dist: psutil", "Requires-Dist: packaging")


@dataclass(frozen=True)
class ExpectedContents:
    """The members that a wheel must have; it may have no others."""

    members: Mapping[str, bytes]
    """The bytes of each member with known bytes, by name."""
    executables: frozenset[str]
    """The names of the members with execute permission."""
    unchecked: frozenset[str]
    """The names of members whose bytes other gates check: the extension, the build record and RECORD."""


def expected_from_plain(subject: ProductSubject) -> ExpectedContents:
    """Return the members of the plain build, unchanged. Raises `SourceError` or `BuildError` if it cannot be built."""
    plain, dist_info = subject.plain, subject.wheel.dist_info
    return ExpectedContents(_renamed(plain, dist_info), plain.executables, frozenset({f"{dist_info}/RECORD"}))


def expected_from_aiter(subject: ProductSubject) -> ExpectedContents:
    """Return the members of the plain build, corrected, with the version of matrix.yaml and for every platform.

    Raises `SourceError` or `BuildError` if the plain build cannot be built.
    """
    plain, dist_info, expected = subject.plain, subject.wheel.dist_info, expected_from_plain(subject)
    members = {**expected.members, **corrected_members(plain)}
    lines = plain.metadata_text.split("\n")
    changed = {f"Version: {plain.version}": f"Version: {subject.project.version}"}
    kept = [changed.get(line, line) for line in lines if line not in _UNUSED_BY_AITER]
    members[f"{dist_info}/METADATA"] = "\n".join(kept).encode()
    wheel = [line for line in members[f"{dist_info}/WHEEL"].decode().split("\n") if line and "Tag: " not in line]
    pure = "\n".join([*wheel, "Tag: py3-none-any", ""]).replace("Purelib: false", "Purelib: true")
    members[f"{dist_info}/WHEEL"] = pure.encode()
    return replace(expected, members=members)


def expected_from_cell(subject: Subject) -> ExpectedContents:
    """Return the members of the plain build, changed for a cell: label, torch pin, tags, corrections, added files.

    Raises `SourceError` or `BuildError` if the plain build cannot be built.
    """
    wheel, cell, label = subject.wheel, subject.cell, Label.from_cell(subject.cell)
    plain, dist_info = subject.plain, wheel.dist_info
    members = _renamed(plain, dist_info) | corrected_members(plain) | added_members(cell)
    executable, others = plain.executables, {f"{dist_info}/RECORD", f"{dist_info}/{BUILD_RECORD_NAME}"}
    members[f"{dist_info}/METADATA"] = _metadata(plain.metadata_text, f"{cell.public_version}+{label}", label).encode()
    build, wheel_file, top_level = subject.record.build, f"{dist_info}/WHEEL", f"{dist_info}/top_level.txt"
    if build and cell.backend is Backend.TRITON:
        members[wheel_file] = _tagged(members[wheel_file], ["py3-none-any"], build)
    if cell.backend is Backend.CK:
        name, tags = extension_name(subject), sorted(map(str, wheel.tags))
        executable, others = executable | {name}, others | {name}
        members[wheel_file] = _tagged(members[wheel_file], tags, build, "Root-Is-Purelib: false")
        packages = sorted([*members[top_level].decode().split(), EXTENSION_MODULE])
        members[top_level] = "".join(f"{package}\n" for package in packages).encode()
    return ExpectedContents(members, executable, frozenset(others))


def extension_name(subject: Subject) -> str:
    """Return the name of the one compiled file of a CK wheel, as the Python of the cell expects it."""
    return f"{EXTENSION_MODULE}.cpython-{subject.cell.python_tag.removeprefix('cp')}-x86_64-linux-gnu.so"


def _renamed(plain: Wheel, dist_info: str) -> dict[str, bytes]:
    """Return the members of a plain wheel without RECORD, with the dist-info folder renamed."""
    own = f"{plain.dist_info}/"
    members = ((info.filename, data) for info, data in plain.read_members(plain.sizes.keys() - {f"{own}RECORD"}))
    return {f"{dist_info}/{name.removeprefix(own)}" if name.startswith(own) else name: data for name, data in members}


def _metadata(plain: str, version: str, label: Label) -> str:
    """Return METADATA with the labelled version, and the pin on torch after the other requirements."""
    head, blank, description = plain.partition("\n\n")
    kept = [line for line in head.split("\n") if not _is_replaced(line)]
    version_at = [line.startswith("Version: ") for line in kept].index(True)
    kept[version_at] = f"Version: {version}"
    last = max((at for at, line in enumerate(kept) if line.startswith(_REQUIRES)), default=len(kept) - 1)
    products = (f"{_REQUIRES}{name}>=0.0" for name in label.requires)
    kept[last + 1 : last + 1] = [*products, f"{_REQUIRES}{label.torch_pin}"]
    return "\n".join(kept) + blank + description


def _is_replaced(line: str) -> bool:
    name = re.match("[A-Za-z0-9._-]*", line.removeprefix(_REQUIRES))
    return line.startswith(_REQUIRES) and name is not None and canonicalize_name(name[0]) in _REPLACED


def _tagged(plain: bytes, tags: list[str], build: str | None, purelib: str = "Root-Is-Purelib: true") -> bytes:
    """Return the text of WHEEL with these tags."""
    kept = [line for line in plain.decode().split("\n") if line and not line.startswith(("Tag: ", "Root-Is-Purelib: "))]
    builds = [f"Build: {build}"] * bool(build)
    return "\n".join([*kept, purelib, *builds, *(f"Tag: {tag}" for tag in tags), ""]).encode()


_AGAIN = "the wheel differs from a build of its pinned sources: build it again, and find out who changed it"


def check_contents(subject: Subject) -> GateResult:
    """Compare with the plain build of the release. Raises `SourceError` or `BuildError` if it cannot be built."""
    backend = subject.matrix.flash_attn[subject.cell.flash_attn].backend(subject.cell.backend)
    sizes = backend.wheel_bytes if backend else range(0)
    compiled = _extension_findings(subject.wheel, extension_name(subject)) if subject.cell.backend is Backend.CK else ()
    return _result(subject.wheel, expected_from_cell(subject), sizes, (*compiled, *_correction_findings(subject)))


def check_product_contents(
    subject: ProductSubject, expect: Callable[[ProductSubject], ExpectedContents], sizes: range
) -> GateResult:
    """Compare with the contents that `expect` derives from the plain build of the pinned sources; `sizes` in bytes.

    Raises `SourceError` or `BuildError` if it cannot be built.
    """
    return _result(subject.wheel, expect(subject), sizes)


def _correction_findings(subject: Subject) -> Iterator[Finding]:
    expected = corrected_lines(subject.plain)
    if subject.record.corrections != expected:
        found = "none" if subject.record.corrections is None else str(dict(subject.record.corrections))
        yield Finding("build record corrections", str(expected), found, _AGAIN)


def _result(wheel: Wheel, expected: ExpectedContents, sizes: range, more: Iterable[Finding] = ()) -> GateResult:
    size = wheel.path.stat().st_size
    checks = (_name_findings, _byte_findings, _archive_findings)
    findings = [*chain.from_iterable(check(wheel, expected) for check in checks), *more]
    if size not in sizes:
        remedy = "compare `wheelfactory inspect` with a good wheel: kernels are missing, or something was added"
        allowed = f"{sizes.start:,} to {sizes.stop - 1:,} bytes"
        findings.append(Finding(wheel.path.name, allowed, f"{size:,} bytes", remedy))
    figures = {"bytes": size, "unpacked bytes": sum(wheel.sizes.values())}
    return GateResult.from_findings("contents", findings[:MAX_FINDINGS], f"{size:,} bytes", figures=figures)


def _name_findings(wheel: Wheel, expected: ExpectedContents) -> Iterator[Finding]:
    allowed = expected.members.keys() | expected.unchecked
    for name in sorted(allowed - wheel.sizes.keys()):
        yield Finding(wheel.path.name, name, "no such file", _AGAIN)
    for name in sorted(wheel.sizes.keys() - allowed):
        yield Finding(name, "no such file", f"{wheel.sizes[name]:,} bytes", _AGAIN)


def _byte_findings(wheel: Wheel, expected: ExpectedContents) -> Iterator[Finding]:
    """Find members whose bytes differ, with the first different line, or whose compressed data is far too long."""
    for info, data in wheel.read_members(sorted(expected.members.keys() & wheel.sizes.keys())):
        name, packed = info.filename, info.compress_size
        if data != expected.members[name]:
            yield Finding(name, *_first_difference(expected.members[name], data), _AGAIN)
        # any compressor needs at most a quarter more than zlib at its default level, and 64 bytes
        elif info.compress_type != zipfile.ZIP_STORED and packed > (most := len(zlib.compress(data)) * 5 // 4 + 64):
            # empty blocks and unused tables in a deflate stream can hide data
            yield Finding(name, f"at most {most:,} compressed bytes", f"{packed:,}", _AGAIN)


def _first_difference(expected: bytes, found: bytes) -> tuple[str, str]:
    if found.startswith(expected) and not found[len(expected) :].strip(b"\n"):
        return "one line feed at the end", f"{len(found) - len(expected)} more"
    if expected.startswith(found) and not expected[len(found) :].strip(b"\n"):
        return "a line feed at the end", "no line feed"
    lines = zip_longest(expected.split(b"\n"), found.split(b"\n"))
    number, pair = next((number, pair) for number, pair in enumerate(lines, 1) if pair[0] != pair[1])
    wanted, other = ("no line" if line is None else repr(line.decode("utf-8", "replace")) for line in pair)
    return f"{wanted} on line {number}", other


def _archive_findings(wheel: Wheel, expected: ExpectedContents) -> Iterator[Finding]:
    """Compare archive headers and file modes with those that the factory writes."""
    for fault in find_noncanonical(wheel.path, expected.executables):
        yield Finding(fault.member, fault.expected, fault.found, _AGAIN)


def _extension_findings(wheel: Wheel, name: str) -> Iterator[Finding]:
    """Check the layout of the compiled file and its entry point; the machine code itself cannot be predicted."""
    elf = next((elf for elf in wheel.elf_files if elf.name == name), None)
    if elf is None:
        remedy = "read the build's log: it did not compile the backend, or compiled it for another Python"
        yield Finding(name, "an ELF file", "no such file", remedy)
        return
    for expected, found in elf.layout_faults:
        yield Finding(name, expected, found, "link it again with the linker of the image")
    modules = sorted(symbol for symbol in elf.defined if symbol.startswith("PyInit_"))
    if modules != [f"PyInit_{EXTENSION_MODULE}"]:
        remedy = "build it again: it is not the Python module of this name"
        yield Finding(name, f"PyInit_{EXTENSION_MODULE}", ", ".join(modules) or "no such symbol", remedy)
