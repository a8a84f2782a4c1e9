"""Gates: the archive is undamaged and extracts the same everywhere, and RECORD lists exactly its members."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.verify.gate import HasWheel
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.archive import find_archive_faults, open_archive
from wheelfactory.wheel.read import Wheel

_REMEDY = "the file was changed after it was built: build or download it again"
_CHUNK = 1 << 20
_MAX_FINDINGS = 20
"""Findings of one wheel that are shown."""


def check_record(subject: HasWheel) -> GateResult:
    """Compare the lines of RECORD, in any order, with the lines that the members require."""
    wheel = subject.wheel
    itself = f"{wheel.dist_info}/RECORD"
    text = wheel.read(itself)
    body = text.rstrip(b"\n")
    found = Counter(body.split(b"\n"))
    findings = list(islice(_line_findings(wheel.path.name, dict(_lines(wheel, itself)), found), _MAX_FINDINGS))
    if (line_feeds := len(text) - len(body)) != 1:
        expected = "one line feed at the end"
        findings.append(Finding(file=itself, expected=expected, found=f"{line_feeds}", remedy=_REMEDY))
    return GateResult.from_findings("record", findings, f"{len(wheel.sizes)} members")


def _line_findings(file: str, expected: Mapping[bytes, bytes], found: Counter[bytes]) -> Iterator[Finding]:
    """Compare lines; `expected` has the line of each member by its name in CSV spelling."""
    others = {line.rsplit(b",", 2)[0]: line for line in found - Counter(expected.values())}
    for name, line in sorted(expected.items()):
        if line not in found:
            other = others.pop(name, b"no such line")
            yield Finding(file=_shown(name), expected=f"{_shown(line)} in RECORD", found=_shown(other), remedy=_REMEDY)
    for line in others.values():
        yield Finding(file=file, expected="one line in RECORD for each member", found=_shown(line), remedy=_REMEDY)


def _lines(wheel: Wheel, itself: str) -> Iterator[tuple[bytes, bytes]]:
    yield _line(itself), _line(itself, "", "")
    with open_archive(wheel.path) as archive:
        for name in wheel.sizes.keys() - {itself}:
            digest = hashlib.sha256()
            with archive.open(name) as member:
                for piece in iter(partial(member.read, _CHUNK), b""):
                    digest.update(piece)
            value = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
            yield _line(name), _line(name, f"sha256={value}", str(wheel.sizes[name]))


def _line(*fields: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue().encode()


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace")


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
