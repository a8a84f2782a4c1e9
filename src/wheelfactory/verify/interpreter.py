"""Gate: the Triton kernels of a wheel compute attention and its gradients, in Triton's interpreter on the CPU.

Covered: fp16, dense and packed sequences and a cache of keys, causal and not, grouped heads, uneven lengths, head dims
40, 64 and 128. Not covered: bf16, which the interpreter cannot do, and the compiled code; the GPU gate runs that.
"""

from __future__ import annotations

from wheelfactory.build.environments import interpreter_environment, interpreter_requirements
from wheelfactory.core.progress import logger
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import limits_of
from wheelfactory.verify.numbers import CHECK, STANDARDS, TIMEOUT, Numbers, find_faults, gate_result
from wheelfactory.verify.proofs import (
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

WHERE = "in Triton's interpreter"


def interpreter(subject: Subject) -> GateResult:
    """Run the kernels in the interpreter of the cell's Triton, unless a proof is kept of that."""
    answer, computed = compute(subject), f"Triton {subject.triton}"
    versions = {"torch": stand_in_torch(), "triton": subject.triton}
    return gate_result(subject, "interpreter", answer, WHERE, computed, limits_of(subject), versions)


def compute(subject: Subject) -> Numbers | str:
    """What the kernels compute in the interpreter, kept if it is right; or why they compute nothing."""
    arguments = ("flash_attn", "cpu", "small", *(limit.argument for limit in limits_of(subject)))
    beside = (*stand_in(subject.triton), *interpreter_requirements())
    question = Question(CHECK, arguments, payload_sha256(subject.wheel), beside)
    proofs, file, standard = Proofs(subject.cache / "proofs"), subject.wheel.path.name, STANDARDS[subject.cell.backend]
    kept = proofs.find(question, Numbers)
    if kept is not None and not any(find_faults(file, standard, kept, WHERE)):
        return kept
    environ = {**program_environ(subject.environ, subject.cell.backend), "TRITON_INTERPRET": "1"}
    numpy = interpreter_environment(subject.cache)
    logger.info("computing with the interpreter of Triton %s", subject.triton)
    with stand_in_environment(subject.cache, subject.wheel, subject.triton, numpy) as environment:
        home = environment.folder / "home"
        answer = ask(question.command, Numbers, environment, environ, scratch=home, timeout=TIMEOUT)
    if isinstance(answer, Numbers) and not any(find_faults(file, standard, answer, WHERE)):
        proofs.keep(question, answer)
    return answer
