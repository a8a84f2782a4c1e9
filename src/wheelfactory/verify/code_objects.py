"""Gate: there is device code for exactly the promised archs, in every bundle that has any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.elf.offload import Bundle, sum_device_code
from wheelfactory.wheel.elf.read import ElfFile

_LEAST_SHARE = 0.1
"""Of the arch with the most device code, what every other must have; kernels that were compiled away leave shells.

Source: CK kernels of 2.8.3, compiled for gfx90a, gfx942 and gfx950, differ by a tenth at most.
"""
_MOST = 20


def check_code_objects(subject: Subject) -> GateResult:
    """Compare the targets of each bundle with the archs that the build record promises.

    A compiler writes a bundle for each source that has device code, with an entry for every arch, and none for another
    source. So every bundle must have all archs, and as many bundles as the start-up code registers must be there.
    """
    if not subject.wheel.elf_files:
        return GateResult.not_run("code-objects", "there is no compiled file")
    promised = frozenset(subject.record.offload_archs)
    findings: list[Finding] = []
    bundles: list[Bundle] = []
    for elf in subject.wheel.elf_files:
        findings += _bundle_findings(elf, promised)
        bundles += elf.bundles
    sizes = {target: code.size for target, code in sum_device_code(bundles).items()}
    if not bundles:
        cure = "this is a build for the CPU: hipcc did not compile the kernels; read the build's log"
        expected, found = f"device code for {_text(promised)}", "no bundle in a .hip_fatbin section"
        findings.append(Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=cure))
    findings += _shells(subject, sizes)
    figures = {"bundles": len(bundles)} | {f"{target} bytes": size for target, size in sizes.items()}
    return GateResult.from_findings("code-objects", findings[:_MOST], ", ".join(sizes) or "none", figures=figures)


def _bundle_findings(elf: ElfFile, promised: frozenset[str]) -> Iterator[Finding]:
    for bundle in elf.bundles:
        place = f"{elf.name}, bundle at {bundle.offset}"
        if bundle.targets != promised:
            cure = "one object was compiled for other GPUs than the rest: clear the build folder and build again"
            yield Finding(file=place, expected=_text(promised), found=_text(bundle.targets), remedy=cure)
        for entry in bundle.entries:
            if entry.target and entry.size and entry.arch != entry.target.arch:
                expected = f"a code object for {entry.target.arch} where the bundle says so"
                found = f"one for {entry.arch}" if entry.arch else f"{entry.size} bytes that are no code object"
                cure = "the bundle was put together wrongly: clear the build folder and build again"
                yield Finding(file=place, expected=expected, found=found, remedy=cure)
    if elf.registered != len(elf.bundles):  # objects without device code register what is not there
        expected, found = f"the {elf.registered} bundles that its start-up code registers", f"{len(elf.bundles)}"
        cure = "objects were compiled for the host only, or not by a HIP compiler: read the build's log"
        yield Finding(file=elf.name, expected=expected, found=found, remedy=cure)


def _shells(subject: Subject, sizes: Mapping[str, int]) -> Iterator[Finding]:
    most = max(sizes.values(), default=0)
    for target, size in sizes.items():
        if size < _LEAST_SHARE * most:
            expected = f"about as much device code for {target} as for the others"
            found = f"{size:,} of {most:,} bytes"
            cure = "the kernels of this arch were compiled away: does the release support it?"
            yield Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=cure)


def _text(targets: frozenset[str]) -> str:
    return ", ".join(sorted(targets)) or "nothing"
