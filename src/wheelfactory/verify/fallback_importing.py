"""Gate: the wheel installs into a fresh environment and imports there, with nothing but what it requires: torch."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from wheelfactory.build.environments import build_requirements, cpu_torch_requirement
from wheelfactory.core.digest import file_sha256
from wheelfactory.verify.fallback_program import ENVIRONMENT, run_or_reuse
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.proofs import PROGRAMS, ProgramReport, ProofKey
from wheelfactory.verify.result import Finding, GateResult

_PROGRAM = PROGRAMS / "import_fallback.py"

_OF_TORCH = frozenset({"torch", "setuptools"})
"""Of what builds wheels, what a Python with torch has: torch 2.13 requires setuptools."""


class _Imported(ProgramReport):
    version: str


def check_fallback_import(subject: FallbackSubject) -> GateResult:
    """Import as users do, unless a proof is kept of these very bytes."""
    wheel = subject.wheel
    question = ProofKey(_PROGRAM, _absent(), file_sha256(wheel.path), ENVIRONMENT)
    version = str(wheel.version)
    said = run_or_reuse(subject, question, _Imported, lambda report: report.version == version)
    findings = []
    if isinstance(said, str):
        cure = "it must import with torch alone: correct the package"
        findings = [Finding(file=wheel.path.name, expected="to install and import", found=said, remedy=cure)]
    elif said.version != version:
        cure = "build the wheel again"
        findings = [Finding(file=wheel.path.name, expected=f"version {version}", found=said.version, remedy=cure)]
    return GateResult.from_findings("import", findings, cpu_torch_requirement())


def _absent() -> tuple[str, ...]:
    """What the environment has for other wheels, which a user of this one need not have."""
    names = (canonicalize_name(Requirement(line).name) for line in build_requirements())
    return tuple(sorted(name for name in names if name not in _OF_TORCH))
