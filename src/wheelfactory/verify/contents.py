"""Gate: a wheel has exactly the members of a plain build of its pinned sources, plus the declared ones of its cell.

The same code checks all wheels of this factory. It compares the names of the members, their bytes, their compressed
sizes, the archive around them, the layout and the entry point of the extension (CK), and the wheel's size.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, zip_longest

from wheelfactory.core.cell import Backend
from wheelfactory.verify.expected import ExpectedContents, expected_from_cell, extension_name
from wheelfactory.verify.gate import ProductSubject, Subject
from wheelfactory.verify.result import MAX_FINDINGS, Finding, GateResult
from wheelfactory.wheel.activation.corrections import EXTENSION_MODULE, corrected_lines
from wheelfactory.wheel.archive import find_noncanonical
from wheelfactory.wheel.read import Wheel

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
        elif info.compress_type != zipfile.ZIP_STORED and packed > (most := _max_compressed_size(data)):
            # empty blocks and unused tables in a deflate stream can hide data
            yield Finding(name, f"at most {most:,} compressed bytes", f"{packed:,}", _AGAIN)


def _max_compressed_size(data: bytes) -> int:
    """Return the bytes that any compressor may need: a quarter more than zlib's default level, and 64."""
    return len(zlib.compress(data)) * 5 // 4 + 64


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
