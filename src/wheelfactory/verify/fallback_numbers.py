"""Gate: the package computes attention and its gradients, on the CPU, as near to float64 as upstream asks of itself.

The cases of the interpreter gate. Required, as it needs neither a GPU nor ROCm; `validate` runs more cases, on GPUs.
"""

from __future__ import annotations

from wheelfactory.build.fallback import PACKAGE
from wheelfactory.verify.fallback_program import ENVIRONMENT, run_or_reuse
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.numbers import (
    FALLBACK_TOLERANCE,
    NUMBERS_PROGRAM,
    NumericReport,
    find_numeric_faults,
    worst_errors,
)
from wheelfactory.verify.proofs import ProofKey, payload_sha256, stand_in_torch_version
from wheelfactory.verify.result import Finding, GateResult

_CURE = "the package computes something else with this torch: correct it"


def check_fallback_numbers(subject: FallbackSubject) -> GateResult:
    """Run the cases on the CPU, unless a proof is kept of that."""
    question = ProofKey(NUMBERS_PROGRAM, (PACKAGE, "cpu", "small"), payload_sha256(subject.wheel), ENVIRONMENT)
    said = run_or_reuse(subject, question, NumericReport, lambda report: not _findings(subject, report))
    return GateResult.from_findings(
        "numbers",
        _findings(subject, said),
        "on the CPU, against float64",
        versions={"torch": stand_in_torch_version()},
        figures=worst_errors(said, FALLBACK_TOLERANCE),
    )


def _findings(subject: FallbackSubject, said: NumericReport | str) -> list[Finding]:
    found = find_numeric_faults(subject.wheel.path.name, FALLBACK_TOLERANCE, said, "on the CPU")
    return [finding.model_copy(update={"cure": _CURE}) for finding in found]
