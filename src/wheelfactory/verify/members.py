"""Gate: RECORD lists every member, with its hash and size, as an installer would check it."""

from __future__ import annotations

import csv
from collections.abc import Collection

from installer.exceptions import InstallerError
from installer.records import InvalidRecordEntry, parse_record_file
from installer.sources import WheelFile

from wheelfactory.errors import InputError
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.archive import open_archive

_CURE = "the file was changed after it was built: build or download it again"


def record(subject: Subject) -> GateResult:
    """Check RECORD against the members, contents included."""
    path, members = subject.wheel.path, subject.wheel.sizes
    try:
        with open_archive(path) as archive:
            issues = _issues(WheelFile(archive), members)
    except InputError as error:
        issues = [str(error)]
    findings = [
        Finding(file=path.name, expected="RECORD to be right", found=issue.removeprefix(f"In {path}, "), cure=_CURE)
        for issue in issues
    ]
    return GateResult.of("record", findings, f"{len(members)} members")


def _issues(wheel: WheelFile, members: Collection[str]) -> list[str]:
    """What the installer finds wrong, and what it does not look for: members that are listed and missing."""
    try:
        listed = {row[0] for row in parse_record_file(wheel.read_dist_info("RECORD").splitlines())}
    except (InstallerError, InvalidRecordEntry, KeyError, csv.Error) as error:
        return [f"RECORD cannot be read: {error}"]
    missing = [f"{name} is listed in RECORD and missing" for name in sorted(listed.difference(members))]
    try:
        wheel.validate_record(validate_contents=True)
    except InstallerError as error:
        return [*missing, *getattr(error, "issues", [str(error)])]
    return missing
