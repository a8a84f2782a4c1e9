"""Gate: file name, tags, WHEEL and METADATA say what the checkout's pyproject.toml says, and no label."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement

from wheelfactory.build.fallback import PACKAGE
from wheelfactory.core.cell import FALLBACK_NAME
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.identity import expect, never_required
from wheelfactory.verify.result import Finding, GateResult

_AGAIN = f"build it again: `wheelfactory build {FALLBACK_NAME}`"


def identity(subject: FallbackSubject) -> GateResult:
    """Compare everything a wheel says about itself with its sources; reads the wheel only."""
    findings = [*_name(subject), *_metadata(subject)]
    return GateResult.of("identity", findings, f"{FALLBACK_NAME} {subject.project.version}")


def _name(subject: FallbackSubject) -> Iterator[Finding]:
    wheel, project = subject.wheel, subject.project
    yield from expect(wheel.path.name, project.filename, wheel.path.name, _AGAIN)
    yield from expect("WHEEL", frozenset({"py3-none-any"}), wheel.wheel_tags, "the name and WHEEL must agree")
    stem = f"{PACKAGE}-{project.version}"
    yield from expect("dist-info", f"{stem}.dist-info", wheel.dist_info, "a wheel is never renamed; build it again")


def _metadata(subject: FallbackSubject) -> Iterator[Finding]:
    wheel, project = subject.wheel, subject.project
    yield from expect("METADATA Name", FALLBACK_NAME, wheel.metadata["Name"], _AGAIN)
    yield from expect("METADATA Version", project.version, wheel.metadata["Version"], _AGAIN)
    yield from expect("METADATA Requires-Python", project.requires_python, wheel.metadata["Requires-Python"], _AGAIN)
    stated = frozenset(Requirement(text) for text in project.requires)
    yield from expect("METADATA Requires-Dist", stated, frozenset(wheel.requirements), _AGAIN)
    yield from never_required(wheel)
