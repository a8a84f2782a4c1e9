"""Gate: a wheel holds what a plain build of its pinned sources holds, what is declared of its cell, and nothing else.

One mechanism for Triton, CK and flash-attention-amd. Seven rules: the names of the members, their bytes, how many bytes
those take when packed, the archive around them, the outside of the extension (CK), its one entry point (CK), the size.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from itertools import zip_longest

from wheelfactory.core.cell import Backend
from wheelfactory.verify.expected import ExpectedContents, expected_from_cell, expected_from_fallback, extension_name
from wheelfactory.verify.gate import FallbackSubject, Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.activation.members import EXTENSION_MODULE
from wheelfactory.wheel.archive import find_noncanonical
from wheelfactory.wheel.read import Wheel

MAX_FALLBACK_SIZE = 1_000_000
"""Bytes; its sources are some 100 kB."""

_AGAIN = "it is not what its pinned sources make: build it again, and find out who changed it"
_LONGEST, _MOST = 120, 20
"""Characters shown of a line, and findings of one wheel."""


def check_contents(subject: Subject) -> GateResult:
    """Compare with the plain build of the release. Raises `SourceError` or `BuildError` if there is none to be had."""
    backend = subject.matrix.flash_attn[subject.cell.flash_attn].backend(subject.cell.backend)
    sizes = backend.wheel_bytes if backend else range(0)
    compiled = _extension(subject.wheel, extension_name(subject)) if subject.cell.backend is Backend.CK else ()
    return _result(subject.wheel, expected_from_cell(subject), sizes, compiled)


def check_fallback_contents(subject: FallbackSubject) -> GateResult:
    """Compare with the plain build of the checkout's sources. Raises `BuildError` if there is none to be had."""
    return _result(subject.wheel, expected_from_fallback(subject), range(MAX_FALLBACK_SIZE + 1), ())


def _result(wheel: Wheel, expected: ExpectedContents, sizes: range, more: Iterator[Finding] | tuple[()]) -> GateResult:
    size = wheel.path.stat().st_size
    findings = [*_names(wheel, expected), *_bytes(wheel, expected), *_entries(wheel, expected), *more]
    if size not in sizes:
        cure = "kernels are missing, or something was added: compare `wheelfactory inspect` with a good wheel"
        allowed = f"{sizes.start:,} to {sizes.stop - 1:,} bytes"
        findings.append(Finding(file=wheel.path.name, expected=allowed, found=f"{size:,} bytes", remedy=cure))
    figures = {"bytes": size, "unpacked bytes": sum(wheel.sizes.values())}
    return GateResult.from_findings("contents", findings[:_MOST], f"{size:,} bytes", figures=figures)


def _names(wheel: Wheel, expected: ExpectedContents) -> Iterator[Finding]:
    allowed = expected.members.keys() | expected.unchecked
    for name in sorted(allowed - wheel.sizes.keys()):
        yield Finding(file=wheel.path.name, expected=name, found="no such file", remedy=_AGAIN)
    for name in sorted(wheel.sizes.keys() - allowed):
        yield Finding(file=name, expected="no such file", found=f"{wheel.sizes[name]:,} bytes", remedy=_AGAIN)


def _bytes(wheel: Wheel, expected: ExpectedContents) -> Iterator[Finding]:
    """A finding for each member that differs, with the first line that does, or that is packed into far too much."""
    for info, data in wheel.read_members(sorted(expected.members.keys() & wheel.sizes.keys())):
        name, packed = info.filename, info.compress_size
        if data != expected.members[name]:
            wanted, found = _first_difference(expected.members[name], data)
            yield Finding(file=name, expected=wanted, found=found, remedy=_AGAIN)
        elif info.compress_type != zipfile.ZIP_STORED and packed > (most := _most_packed(data)):
            # a stream may hold blocks of nothing, and tables that nothing uses
            wanted, found = f"{most:,} packed bytes at most", f"{packed:,}"
            yield Finding(file=name, expected=wanted, found=found, remedy=_AGAIN)


def _most_packed(data: bytes) -> int:
    """What a compressor may need for a member: a quarter more than zlib's usual level does, and a little."""
    return len(zlib.compress(data)) * 5 // 4 + 64


def _first_difference(expected: bytes, found: bytes) -> tuple[str, str]:
    lines = zip_longest(expected.split(b"\n"), found.split(b"\n"))
    number, pair = next((number, pair) for number, pair in enumerate(lines, 1) if pair[0] != pair[1])
    wanted, other = ("nothing" if line is None else ascii(line.decode("utf-8", "replace"))[:_LONGEST] for line in pair)
    return f"{wanted} on line {number}", other


def _entries(wheel: Wheel, expected: ExpectedContents) -> Iterator[Finding]:
    """What the archive says of a member: a plain file, which is a program if the plain build says so."""
    for fault in find_noncanonical(wheel.path, expected.executables):
        yield Finding(file=fault.member, expected=fault.expected, found=fault.found, remedy=_AGAIN)


def _extension(wheel: Wheel, name: str) -> Iterator[Finding]:
    """The outside of the compiled file, and the one module in it. The code itself nobody can compute."""
    elf = next((elf for elf in wheel.elf_files if elf.name == name), None)
    if elf is None:
        cure = "the build did not compile the backend, or for another Python: read its log"
        yield Finding(file=name, expected="an ELF file", found="none", remedy=cure)
        return
    for expected, found in elf.layout_faults:
        yield Finding(file=name, expected=expected, found=found, remedy="link it again with the linker of the image")
    modules = sorted(symbol for symbol in elf.defined if symbol.startswith("PyInit_"))
    if modules != [f"PyInit_{EXTENSION_MODULE}"]:
        cure = "this is no Python module of that name: build it again"
        yield Finding(
            file=name, expected=f"PyInit_{EXTENSION_MODULE}", found=", ".join(modules) or "no such symbol", remedy=cure
        )
