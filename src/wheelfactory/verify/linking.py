"""Gate: the extension needs only what torch, ROCm and the system bring, and can be loaded where its tag says."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from packaging.version import Version

from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.repair import EXTERNAL_LIBRARIES

SYSTEM_LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "ld-linux-*.so.*"),
    *("libgcc_s.so.1", "libstdc++.so.6"),
)
"""Libraries that every manylinux system has. Source: PEP 600, and the policies in auditwheel."""


def check_linking(subject: Subject) -> GateResult:
    """Compare NEEDED, RUNPATH and symbol versions with the allowed libraries and the platform tag."""
    files, promised, image = subject.wheel.elf_files, subject.wheel.glibc, subject.matrix.image(subject.cell)
    findings = [finding for elf in files for finding in _loading(elf)]
    if promised and promised > Version(image.glibc):
        cure = f"build it in {image.tag}, or on a system as old"
        expected = f"glibc {image.glibc} or older, as in the image of the cell"
        found = f"glibc {promised}"
        findings.append(Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=cure))
    for elf in files:
        if elf.glibc and promised and elf.glibc > promised:
            cure = "the platform tag promises systems that cannot load it: run `wheelfactory repair` on the raw wheel"
            expected, found = f"symbols of glibc {promised}", f"glibc {elf.glibc}"
            findings.append(Finding(file=elf.name, expected=expected, found=found, remedy=cure))
    needed = {name for elf in files for name in elf.needed}
    return GateResult.from_findings(
        "linking", findings, f"needs {len(needed)} libraries", figures={"libraries": len(needed)}
    )


def _loading(elf: ElfFile) -> Iterator[Finding]:
    for name in elf.needed:
        # with a slash it is a path, which the loader takes from the folder that a user is in
        if "/" in name or not any(fnmatchcase(name, pattern) for pattern in (*EXTERNAL_LIBRARIES, *SYSTEM_LIBRARIES)):
            cure = "link it statically, or not at all: nobody who installs the wheel has it"
            yield Finding(file=elf.name, expected="libraries of torch, ROCm and the system", found=name, remedy=cure)
    for path in elf.runpath:
        if not path.startswith("$ORIGIN"):
            cure = "link without -rpath: a path of the build machine is somebody else's library on another"
            yield Finding(file=elf.name, expected="no RUNPATH, or one below $ORIGIN", found=path or "''", remedy=cure)
