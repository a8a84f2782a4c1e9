"""Gate: the extension needs only libraries of torch, ROCm and the system, and loads on every system of its tag."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.repair import foreign_libraries


def check_linking(subject: Subject) -> GateResult:
    """Compare NEEDED, RUNPATH and symbol versions with the allowed libraries and the platform tag."""
    files, promised, image = subject.wheel.elf_files, subject.wheel.glibc, subject.matrix.image(subject.cell)
    findings = [finding for elf in files for finding in _library_findings(elf)]
    if promised and promised > Version(image.glibc):
        remedy = f"build it in {image.tag}, or on a system that is no newer"
        expected = f"glibc {image.glibc} or older, as in the image of the cell"
        found = f"glibc {promised}"
        findings.append(Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=remedy))
    for elf in files:
        if elf.glibc and promised and elf.glibc > promised:
            remedy = "run `wheelfactory repair` on the raw wheel: the tag includes systems that cannot load it"
            expected, found = f"symbols of glibc {promised}", f"glibc {elf.glibc}"
            findings.append(Finding(file=elf.name, expected=expected, found=found, remedy=remedy))
    needed = {name for elf in files for name in elf.needed}
    return GateResult.from_findings(
        "linking", findings, f"needs {len(needed)} libraries", figures={"libraries": len(needed)}
    )


def _library_findings(elf: ElfFile) -> Iterator[Finding]:
    for name in foreign_libraries(elf):
        remedy = "link it statically, or not at all: users of the wheel do not have it"
        yield Finding(file=elf.name, expected="libraries of torch, ROCm and the system", found=name, remedy=remedy)
    for path in elf.runpath:
        if not path.startswith("$ORIGIN"):
            # an absolute path of the build machine may hold anything on another machine
            remedy = "link without -rpath"
            yield Finding(file=elf.name, expected="no RUNPATH, or one below $ORIGIN", found=path or "''", remedy=remedy)
