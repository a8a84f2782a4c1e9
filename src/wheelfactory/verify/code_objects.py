"""Gate: every bundle has device code for exactly the promised archs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult, join_names, show_difference
from wheelfactory.wheel.elf.offload import Bundle, sum_device_code
from wheelfactory.wheel.elf.read import ElfFile

# minimum device code of an arch as a share of the largest arch; kernels that were compiled away leave empty shells.
# Source: CK kernels of 2.8.3 for gfx90a, gfx942 and gfx950 differ by 10 % at most
_MIN_SHARE = 0.1
_MAX_FINDINGS = 20


def check_code_objects(subject: Subject) -> GateResult:
    """Compare the targets of each bundle with the archs in the build record."""
    if not subject.wheel.elf_files:
        return GateResult.not_run("code-objects", "no compiled file in the wheel")
    promised = frozenset(subject.record.offload_archs)
    findings: list[Finding] = []
    bundles: list[Bundle] = []
    for elf in subject.wheel.elf_files:
        findings += _bundle_findings(elf, promised)
        bundles += elf.bundles
    sizes = {target: code.size for target, code in sum_device_code(bundles).items()}
    if not bundles:
        remedy = "this is a CPU build: read the build's log to see why hipcc did not compile the kernels"
        expected, found = f"device code for {join_names(sorted(promised))}", "no bundle in a .hip_fatbin section"
        findings.append(Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=remedy))
    findings += _shells(subject, sizes)
    figures = {"bundles": len(bundles)} | {f"{target} bytes": size for target, size in sizes.items()}
    return GateResult.from_findings(
        "code-objects", findings[:_MAX_FINDINGS], ", ".join(sizes) or "none", figures=figures
    )


def _bundle_findings(elf: ElfFile, promised: frozenset[str]) -> Iterator[Finding]:
    for bundle in elf.bundles:  # a compiler writes one bundle for each source with device code, with an entry per arch
        place = f"{elf.name}, bundle at {bundle.offset}"
        if bundle.targets != promised:
            remedy = "one object was compiled for other GPUs than the rest: clear the build folder and build again"
            expected, found = show_difference(sorted(promised), sorted(bundle.targets))
            yield Finding(file=place, expected=expected, found=found, remedy=remedy)
        for entry in bundle.entries:
            if entry.target and entry.size and entry.arch != entry.target.arch:
                expected = f"a code object for {entry.target.arch}"
                found = f"a code object for {entry.arch}" if entry.arch else f"{entry.size} bytes of something else"
                remedy = "the ids in the bundle are wrong: clear the build folder and build again"
                yield Finding(file=place, expected=expected, found=found, remedy=remedy)
    if elf.registered != len(elf.bundles):  # the start-up code of an object without device code still registers one
        expected, found = f"the {elf.registered} bundles that its start-up code registers", f"{len(elf.bundles)}"
        remedy = "objects were compiled for the host only, or not by a HIP compiler: read the build's log"
        yield Finding(file=elf.name, expected=expected, found=found, remedy=remedy)
    if elf.packages or elf.relocatable_kernels:  # an ordinary linker drops such code, and reports nothing
        expected = "no device code that waits for a device link"
        found = f"{len(elf.packages)} offload packages, {elf.relocatable_kernels} kernels of relocatable device code"
        remedy = "objects were compiled with -fgpu-rdc: compile all with -fno-gpu-rdc"
        yield Finding(file=elf.name, expected=expected, found=found, remedy=remedy)


def _shells(subject: Subject, sizes: Mapping[str, int]) -> Iterator[Finding]:
    most = max(sizes.values(), default=0)
    for target, size in sizes.items():
        if size < _MIN_SHARE * most:
            expected = f"about as much device code for {target} as for the others"
            found = f"{size:,} of {most:,} bytes"
            remedy = "the kernels of this arch were compiled away: remove the arch from matrix.yaml if unsupported"
            yield Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=remedy)
