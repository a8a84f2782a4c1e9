"""Gate: a wheel of flash-attention-amd holds the package as the checkout has it, byte for byte, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wheelfactory.build.fallback import LICENSE
from wheelfactory.core.cell import FALLBACK_NAME
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.result import Finding, GateResult

LARGEST = 1_000_000
"""Bytes; its sources are some 100 kB. METADATA, which the build writes, is all that could make more of them."""

_WRITTEN = ("METADATA", "WHEEL", "RECORD", "top_level.txt")
"""What setuptools writes into dist-info."""


def contents(subject: FallbackSubject) -> GateResult:
    """Compare the members with the sources, so that no compiled file can be among them; and the size."""
    wheel = subject.wheel
    size = wheel.path.stat().st_size
    figures = {"bytes": size, "unpacked bytes": sum(wheel.sizes.values())}
    findings = [*_members(subject, _expected(subject)), *_size(wheel.path.name, size)]
    return GateResult.of("contents", findings, f"{size:,} bytes", figures=figures)


def _expected(subject: FallbackSubject) -> Mapping[str, bytes]:
    """The members that come from the sources."""
    license_name = f"{subject.wheel.dist_info}/licenses/{LICENSE}"
    return {**subject.project.members, license_name: subject.project.build_files[LICENSE]}


def _members(subject: FallbackSubject, expected: Mapping[str, bytes]) -> Iterator[Finding]:
    wheel = subject.wheel
    cure = f"build it again from this checkout: `wheelfactory build {FALLBACK_NAME}`"
    for name in sorted(expected.keys() - wheel.sizes):
        yield Finding(file=wheel.path.name, expected=name, found="no such file", cure=cure)
    written = {f"{wheel.dist_info}/{name}" for name in _WRITTEN}
    compiled = {elf.name for elf in wheel.elf_files}
    for name in sorted(wheel.sizes.keys() - written):
        if name not in expected:
            found = "an ELF file" if name in compiled else "a file more"
            yield Finding(file=name, expected="nothing but the package", found=found, cure=cure)
        elif wheel.read(name) != expected[name]:
            yield Finding(file=name, expected="what the checkout has", found="other bytes", cure=cure)


def _size(name: str, size: int) -> Iterator[Finding]:
    if size > LARGEST:
        cure = "something was added: compare `wheelfactory inspect` with a good wheel"
        yield Finding(file=name, expected=f"{LARGEST:,} bytes at most", found=f"{size:,} bytes", cure=cure)
