"""Gate: flash-attention-amd installs into a fresh environment and imports there with torch alone."""

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

# the build requirements that a Python with torch has anyway: torch 2.13 requires setuptools
_OF_TORCH = frozenset({"torch", "setuptools"})


class _Imported(ProgramReport):
    version: str


def check_fallback_import(subject: FallbackSubject) -> GateResult:
    """Import as users do, unless a cached result exists for a wheel with the same bytes.

    Raises `BuildError` if the CPU torch cannot be installed.
    """
    wheel = subject.wheel
    # the whole file, not the payload: pip reads the metadata too
    key = ProofKey(_PROGRAM, _hidden_packages(), file_sha256(wheel.path), ENVIRONMENT)
    version = str(wheel.version)
    report = run_or_reuse(subject, key, _Imported, lambda imported: imported.version == version)
    findings = []
    if isinstance(report, str):
        remedy = "fix the package: it must import with torch alone"
        findings = [Finding(file=wheel.path.name, expected="to install and import", found=report, remedy=remedy)]
    elif report.version != version:
        remedy = "build the wheel again"
        findings = [Finding(file=wheel.path.name, expected=f"version {version}", found=report.version, remedy=remedy)]
    return GateResult.from_findings("import", findings, cpu_torch_requirement())


def _hidden_packages() -> tuple[str, ...]:
    """Return the packages that the test environment has, but a user may not have."""
    names = (canonicalize_name(Requirement(line).name) for line in build_requirements())
    return tuple(sorted(name for name in names if name not in _OF_TORCH))
