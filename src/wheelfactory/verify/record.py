"""Gate: RECORD lists every member once with its sha256 and its size, and nothing else."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

from wheelfactory.verify.gate import HasWheel
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.read import Wheel

_CURE = "the file was changed after it was built: build or download it again"
_CHUNK, _LONGEST, _MOST = 1 << 20, 200, 20


def check_record(subject: HasWheel) -> GateResult:
    """Compare the lines of RECORD, in any order, with those that the members need."""
    wheel = subject.wheel
    itself = f"{wheel.dist_info}/RECORD"
    text = wheel.read(itself)
    found = Counter(text.removesuffix(b"\n").split(b"\n"))
    findings = list(islice(_findings(wheel.path.name, dict(_lines(wheel, itself)), found), _MOST))
    if not text.endswith(b"\n"):
        findings.append(Finding(file=itself, expected="a line feed at its end", found="none", remedy=_CURE))
    return GateResult.from_findings("record", findings, f"{len(wheel.sizes)} members")


def _findings(file: str, expected: Mapping[bytes, bytes], found: Counter[bytes]) -> Iterator[Finding]:
    """`expected` has the line of each member by its name, as RECORD writes that."""
    others = {line.rsplit(b",", 2)[0]: line for line in found - Counter(expected.values())}
    for name, line in sorted(expected.items()):
        if line not in found:
            other = others.pop(name, b"no such line")
            yield Finding(file=_shown(name), expected=f"{_shown(line)} in RECORD", found=_shown(other), remedy=_CURE)
    for line in others.values():
        yield Finding(file=file, expected="one line in RECORD for each member", found=_shown(line), remedy=_CURE)


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
    return ascii(line.decode("utf-8", "replace"))[1:-1][:_LONGEST]
