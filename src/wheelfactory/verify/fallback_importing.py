"""Gate: the wheel installs into a fresh environment and imports there, with nothing but what it requires: torch."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from wheelfactory.build.environments import build_requirements, cpu_torch
from wheelfactory.core.digest import sha256_of
from wheelfactory.verify.fallback_trial import ENVIRONMENT, answer
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.proofs import PROGRAMS, Question, Report
from wheelfactory.verify.result import Finding, GateResult

_PROGRAM = PROGRAMS / "import_fallback.py"

_OF_TORCH = frozenset({"torch", "setuptools"})
"""Of what builds wheels, what a Python with torch has: torch 2.13 requires setuptools."""


class _Imported(Report):
    version: str


def importing(subject: FallbackSubject) -> GateResult:
    """Import as users do, unless a proof is kept of these very bytes."""
    wheel = subject.wheel
    question = Question(_PROGRAM, _absent(), sha256_of(wheel.path), ENVIRONMENT)
    version = str(wheel.version)
    said = answer(subject, question, _Imported, lambda report: report.version == version)
    findings = []
    if isinstance(said, str):
        cure = "it must import with torch alone: correct the package"
        findings = [Finding(file=wheel.path.name, expected="to install and import", found=said, cure=cure)]
    elif said.version != version:
        cure = "build the wheel again"
        findings = [Finding(file=wheel.path.name, expected=f"version {version}", found=said.version, cure=cure)]
    return GateResult.of("import", findings, cpu_torch())


def _absent() -> tuple[str, ...]:
    """What the environment has for other wheels, which a user of this one need not have."""
    names = (canonicalize_name(Requirement(line).name) for line in build_requirements())
    return tuple(sorted(name for name in names if name not in _OF_TORCH))
