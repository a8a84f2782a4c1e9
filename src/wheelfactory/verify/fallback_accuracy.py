"""Gate: flash-attention-amd computes attention and its gradients on the CPU within upstream's tolerance.

It runs the cases of the interpreter gate. `validate` runs more cases, on GPUs.
"""

from __future__ import annotations

from wheelfactory.build.fallback import PACKAGE
from wheelfactory.verify.accuracy import (
    FALLBACK_TOLERANCE,
    NUMBERS_PROGRAM,
    NumericReport,
    find_numeric_faults,
    worst_errors,
)
from wheelfactory.verify.fallback_program import ENVIRONMENT, run_or_reuse
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.proofs import ProofKey, payload_sha256, stand_in_torch_version
from wheelfactory.verify.result import Finding, GateResult

_REMEDY = "fix the package: its results are wrong with this torch"


def check_fallback_accuracy(subject: FallbackSubject) -> GateResult:
    """Run the cases on the CPU, unless a cached result exists. Raises `BuildError` if torch cannot be installed."""
    key = ProofKey(NUMBERS_PROGRAM, (PACKAGE, "cpu", "small"), payload_sha256(subject.wheel), ENVIRONMENT)
    report = run_or_reuse(subject, key, NumericReport, lambda numbers: not _findings(subject, numbers))
    return GateResult.from_findings(
        "numbers",
        _findings(subject, report),
        "on the CPU, against float64",
        versions={"torch": stand_in_torch_version()},
        figures=worst_errors(report, FALLBACK_TOLERANCE),
    )


def _findings(subject: FallbackSubject, report: NumericReport | str) -> list[Finding]:
    found = find_numeric_faults(subject.wheel.path.name, FALLBACK_TOLERANCE, report, "on the CPU")
    return [finding.model_copy(update={"remedy": _REMEDY}) for finding in found]
