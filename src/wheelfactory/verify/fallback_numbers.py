"""Gate: the package computes attention and its gradients, on the CPU, as near to float64 as upstream asks of itself.

The cases of the interpreter gate. Required, as it needs neither a GPU nor ROCm; `validate` runs more cases, on GPUs.
"""

from __future__ import annotations

from wheelfactory.build.fallback import PACKAGE
from wheelfactory.verify.fallback_trial import ENVIRONMENT, answer
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.numbers import CHECK, FALLBACK, Numbers, figures, find_faults
from wheelfactory.verify.proofs import Question, payload_sha256, stand_in_torch
from wheelfactory.verify.result import Finding, GateResult

_CURE = "the package computes something else with this torch: correct it"


def numbers(subject: FallbackSubject) -> GateResult:
    """Run the cases on the CPU, unless a proof is kept of that."""
    question = Question(CHECK, (PACKAGE, "cpu", "small"), payload_sha256(subject.wheel), ENVIRONMENT)
    said = answer(subject, question, Numbers, lambda report: not _findings(subject, report))
    return GateResult.of(
        "numbers",
        _findings(subject, said),
        "on the CPU, against float64",
        versions={"torch": stand_in_torch()},
        figures=figures(said, FALLBACK),
    )


def _findings(subject: FallbackSubject, said: Numbers | str) -> list[Finding]:
    found = find_faults(subject.wheel.path.name, FALLBACK, said, "on the CPU")
    return [finding.model_copy(update={"cure": _CURE}) for finding in found]
