"""Gate: RECORD lists every member, with its hash and size, as an installer would check it."""

from __future__ import annotations

import zipfile
import zlib

from installer.exceptions import InstallerError
from installer.records import parse_record_file
from installer.sources import WheelFile

from wheelfactory.verify.gate import Finding, GateResult, Subject

_CURE = "the file was changed after it was built: build or download it again"


def record(subject: Subject) -> GateResult:
    """Check RECORD against the members, contents included."""
    path = subject.wheel.path
    try:
        with WheelFile.open(path) as wheel:
            issues = _issues(wheel)
            listed = {row[0] for row in parse_record_file(wheel.read_dist_info("RECORD").splitlines())}
            issues += [
                f"{name} is listed in RECORD and missing" for name in sorted(listed - subject.wheel.sizes.keys())
            ]
    except (InstallerError, zipfile.BadZipFile, zlib.error) as error:
        issues = [str(error)]
    findings = [Finding(file=path.name, expected="RECORD to be right", found=issue, cure=_CURE) for issue in issues]
    return GateResult.of("record", findings, f"{len(subject.wheel.sizes)} members")


def _issues(wheel: WheelFile) -> list[str]:
    try:
        wheel.validate_record(validate_contents=True)
    except InstallerError as error:
        return list(getattr(error, "issues", [str(error)]))
    return []
