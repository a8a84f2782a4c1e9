"""Gate: the Triton kernels of a wheel compute attention and its gradients, in Triton's interpreter on the CPU.

Covered: fp16, dense and packed sequences and a cache of keys, causal and not, grouped heads, uneven lengths, head dims
40, 64 and 128. Not covered: bf16, which the interpreter cannot do, and the compiled code; the GPU gate runs that.
"""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.build.environments import interpreter_environment, interpreter_requirements
from wheelfactory.core.progress import logger
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import limits_of
from wheelfactory.verify.numbers import CHECK, STANDARDS, TIMEOUT, Numbers, figures, find_faults
from wheelfactory.verify.proofs import (
    NoReportError,
    Proofs,
    Question,
    ask,
    payload_sha256,
    program_environ,
    stand_in,
    stand_in_environment,
    stand_in_torch,
)
from wheelfactory.verify.result import Finding, GateResult

WHERE = "in Triton's interpreter"


def interpreter(subject: Subject) -> GateResult:
    """Run the kernels in the interpreter of the cell's Triton, unless a proof is kept of that."""
    triton, payload = _triton(subject), payload_sha256(subject.wheel)
    answer = compute(subject)
    return GateResult.of(
        "interpreter",
        list(_find_faults(subject, answer)),
        "; ".join([f"Triton {triton}, against float64", *map(str, limits_of(subject))]),
        versions={"flash-attn payload": payload[:16], "torch": stand_in_torch(), "triton": triton},
        figures=figures(answer, STANDARDS[subject.cell.backend]),
    )


def compute(subject: Subject) -> Numbers | str:
    """What the kernels compute in the interpreter, kept if it is right; or why they compute nothing."""
    triton = _triton(subject)
    arguments = ("flash_attn", "cpu", "small", *(limit.argument for limit in limits_of(subject)))
    environment = (*stand_in(triton), *interpreter_requirements())
    question = Question(CHECK, arguments, payload_sha256(subject.wheel), environment)
    proofs = Proofs(subject.cache / "proofs")
    kept = proofs.find(question, Numbers)
    if kept is not None and not any(_find_faults(subject, kept)):
        return kept
    answer = _run(subject, question, triton)
    if isinstance(answer, Numbers) and not any(_find_faults(subject, answer)):
        proofs.keep(question, answer)
    return answer


def _triton(subject: Subject) -> str:
    return subject.matrix.torch[subject.cell.torch].triton


def _find_faults(subject: Subject, answer: Numbers | str) -> Iterator[Finding]:
    return find_faults(subject.wheel.path.name, STANDARDS[subject.cell.backend], answer, WHERE)


def _run(subject: Subject, question: Question, triton: str) -> Numbers | str:
    """What the program says, or why it says nothing."""
    environ = {**program_environ(subject.environ, subject.cell.backend), "TRITON_INTERPRET": "1"}
    numpy = interpreter_environment(subject.cache)
    logger.info("computing with the interpreter of Triton %s", triton)
    with stand_in_environment(subject.cache, subject.wheel, triton, numpy) as environment:
        home = environment.folder / "home"
        try:
            return ask(question.command, Numbers, environment, environ, scratch=home, timeout=TIMEOUT)
        except NoReportError as error:
            return str(error)
