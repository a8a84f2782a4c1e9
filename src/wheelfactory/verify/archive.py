"""Gate: the archive can be opened, and every installer sees the same, harmless files in it."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.archive import find_archive_faults
from wheelfactory.wheel.read import Wheel


def check_archive(path: Path) -> GateResult:
    """Look at everything an archive says of its members, and whether they unpack to that; nothing is kept.

    Raises `InputError` if the file is no wheel at all.
    """
    wheel = Wheel.open(path)
    cure = "do not install it; build or download it again"
    try:
        faults = find_archive_faults(path)
    except InputError as error:
        finding = Finding(file=path.name, expected="an archive that can be read", found=error.which, remedy=cure)
        return GateResult.from_findings("archive", [finding])
    findings = [
        Finding(file=f"{fault.member} in {path.name}", expected=fault.expected, found=fault.found, remedy=cure)
        for fault in faults
    ]
    return GateResult.from_findings("archive", findings, "" if findings else f"{len(wheel.sizes)} members")
