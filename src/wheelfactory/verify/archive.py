"""Gate: the archive is undamaged, and every installer extracts the same, harmless files from it."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.archive import find_archive_faults
from wheelfactory.wheel.read import Wheel


def check_archive(path: Path) -> GateResult:
    """Check headers, directory and unpacked members of an archive.

    Raises `InputError` if the file is not a wheel at all.
    """
    wheel = Wheel.open(path)
    remedy = "do not install it; build or download it again"
    try:
        faults = find_archive_faults(path)
    except InputError as error:
        finding = Finding(file=path.name, expected="an undamaged archive", found=error.which, remedy=remedy)
        return GateResult.from_findings("archive", [finding])
    findings = [
        Finding(file=f"{fault.member} in {path.name}", expected=fault.expected, found=fault.found, remedy=remedy)
        for fault in faults
    ]
    return GateResult.from_findings("archive", findings, "" if findings else f"{len(wheel.sizes)} members")
