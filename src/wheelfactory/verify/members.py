"""Gate: RECORD lists every member, with its hash and size, as an installer would check it."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator

from installer.exceptions import InstallerError
from installer.records import InvalidRecordEntry, parse_record_file
from installer.sources import WheelFile

from wheelfactory.core.errors import InputError
from wheelfactory.verify.gate import HasWheel
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.archive import open_archive

_HASHES = ("sha256", "sha384", "sha512")
"""Of the hashes that the wheel specification allows ("sha256 or better"), those that tools write."""
_CURE = "the file was changed after it was built: build or download it again"


def record(subject: HasWheel) -> GateResult:
    """Check RECORD against the members, contents included."""
    path, members = subject.wheel.path, subject.wheel.sizes
    try:
        with open_archive(path) as archive:
            subject.wheel.read(f"{subject.wheel.dist_info}/RECORD")  # refuses one too long to be read as a whole
            issues = _issues(WheelFile(archive), members)
    except InputError as error:
        issues = [str(error)]
    findings = [
        Finding(file=path.name, expected="RECORD to be right", found=issue.removeprefix(f"In {path}, "), cure=_CURE)
        for issue in issues
    ]
    return GateResult.of("record", findings, f"{len(members)} members")


def _issues(wheel: WheelFile, members: Collection[str]) -> list[str]:
    """What the installer finds wrong, and what it does not look for."""
    try:
        rows = list(parse_record_file(wheel.read_dist_info("RECORD").splitlines()))
    except (InstallerError, InvalidRecordEntry, KeyError, csv.Error) as error:
        return [f"RECORD cannot be read: {error}"]
    overlooked = list(_overlooked(rows, members))
    if any(_is_weak(digest) for _, digest, _ in rows):
        return overlooked  # some of them the installer takes and cannot compute
    try:
        wheel.validate_record(validate_contents=True)
    except InstallerError as error:
        return [*overlooked, *getattr(error, "issues", [str(error)])]
    return overlooked


def _overlooked(rows: Collection[tuple[str, str, str]], members: Collection[str]) -> Iterator[str]:
    listed = Counter(name for name, _, _ in rows)
    for name in sorted(listed.keys() - members):
        yield f"{name} is listed in RECORD and missing"
    for name, times in listed.items():
        if times > 1:  # the installer takes the last, others the first
            yield f"{name} is listed {times} times in RECORD"
    for name, digest, _ in rows:
        if _is_weak(digest):
            yield f"{name} has a hash in RECORD that must not be used: {digest}"
    for name in members:
        if name not in listed and name.endswith(("/RECORD.jws", "/RECORD.p7s")):  # signatures, which nobody makes
            yield f"{name} is not mentioned in RECORD"


def _is_weak(digest: str) -> bool:
    return "=" in digest and digest.partition("=")[0] not in _HASHES
