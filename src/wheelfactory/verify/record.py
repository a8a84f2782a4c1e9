"""Gates: the archive is undamaged and extracts the same everywhere, and RECORD lists exactly its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.verify.gate import WheelSubject
from wheelfactory.verify.result import MAX_FINDINGS, Finding, GateResult
from wheelfactory.wheel.archive import find_archive_faults, open_archive
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.rewrite import format_record, hash_and_size

_REMEDY = "the file was changed after it was built: build or download it again"


def check_record(subject: WheelSubject) -> GateResult:
    """Compare the lines of RECORD, in any order, with the lines that the members require."""
    wheel = subject.wheel
    itself = f"{wheel.dist_info}/RECORD"
    text = wheel.read(itself)
    body = text.rstrip(b"\n")
    found = Counter(body.split(b"\n"))
    findings = list(islice(_line_findings(wheel.path.name, dict(_lines(wheel, itself)), found), MAX_FINDINGS))
    if (line_feeds := len(text) - len(body)) != 1:
        findings.append(Finding(itself, "one line feed at the end", f"{line_feeds}", _REMEDY))
    return GateResult.from_findings("record", findings, f"{len(wheel.sizes)} members")


def _line_findings(file: str, expected: Mapping[bytes, bytes], found: Counter[bytes]) -> Iterator[Finding]:
    """Compare lines; `expected` has the line of each member by its name in CSV spelling."""
    others = {line.rsplit(b",", 2)[0]: line for line in found - Counter(expected.values())}
    for name, line in sorted(expected.items()):
        if line not in found:
            other = others.pop(name, b"no such line")
            yield Finding(_shown(name), f"{_shown(line)} in RECORD", _shown(other), _REMEDY)
    for line in others.values():
        yield Finding(file, "one line in RECORD for each member", _shown(line), _REMEDY)


def _lines(wheel: Wheel, itself: str) -> Iterator[tuple[bytes, bytes]]:
    yield _line(itself), _line(itself, "", "")
    with open_archive(wheel.path) as archive:
        for name in wheel.sizes.keys() - {itself}:
            with archive.open(name) as member:
                yield _line(name), _line(name, *hash_and_size(member))


def _line(*fields: str) -> bytes:
    return format_record([[*fields]]).rstrip(b"\n")


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
        finding = Finding(path.name, "an undamaged archive", error.which, remedy)
        return GateResult.from_findings("archive", [finding])
    findings = [Finding(f"{each.member} in {path.name}", each.expected, each.found, remedy) for each in faults]
    return GateResult.from_findings("archive", findings, "" if findings else f"{len(wheel.sizes)} members")
