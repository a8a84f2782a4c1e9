"""Gate: the Triton kernels of a wheel compute attention and its gradients, in Triton's interpreter on the CPU.

Covered: fp16, dense and packed sequences and a cache of keys, causal and not, grouped heads, uneven lengths, head dims
40, 64 and 128. Not covered: bf16, which the interpreter cannot do, and the compiled code; the GPU gate runs that.
"""

from __future__ import annotations

from wheelfactory.environments import interpreter_environment, interpreter_requirements
from wheelfactory.progress import logger
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import limits_of
from wheelfactory.verify.numbers import CHECK, TIMEOUT, Numbers, figures, find_faults
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
from wheelfactory.verify.result import GateResult

_WHERE = "in Triton's interpreter"


def interpreter(subject: Subject) -> GateResult:
    """Run the kernels in the interpreter of the cell's Triton, unless a proof is kept of that."""
    triton = subject.workshop.matrix.torch[subject.cell.torch].triton
    payload, limits = payload_sha256(subject.wheel), limits_of(subject)
    arguments = ("cpu", *(limit.argument for limit in limits))
    question = Question(CHECK, arguments, payload, (*stand_in(triton), *interpreter_requirements()))
    proofs = Proofs(subject.workshop.cache / "proofs")
    answer: Numbers | str | None = proofs.find(question, Numbers)
    if answer is None or any(find_faults(subject, answer, _WHERE)):
        answer = _compute(subject, question, triton)
    findings = list(find_faults(subject, answer, _WHERE))
    if isinstance(answer, Numbers) and not findings:
        proofs.keep(question, answer)
    return GateResult.of(
        "interpreter",
        findings,
        "; ".join([f"Triton {triton}, against float64", *map(str, limits)]),
        versions={"flash-attn payload": payload[:16], "torch": stand_in_torch(), "triton": triton},
        figures=figures(answer, subject.cell.backend),
    )


def _compute(subject: Subject, question: Question, triton: str) -> Numbers | str:
    """What the program says, or why it says nothing."""
    workshop = subject.workshop
    environ = {**program_environ(workshop, subject.cell.backend), "TRITON_INTERPRET": "1"}
    numpy = interpreter_environment(workshop.cache)
    logger.info("computing with the interpreter of Triton %s", triton)
    with stand_in_environment(workshop, subject.wheel, triton, numpy) as environment:
        home = environment.folder / "home"
        try:
            return ask(question.command, Numbers, environment, environ, scratch=home, timeout=TIMEOUT)
        except NoReportError as error:
            return str(error)
