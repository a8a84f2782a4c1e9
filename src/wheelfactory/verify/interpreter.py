"""Gate: the Triton kernels of a wheel compute attention and its gradients, in Triton's interpreter on the CPU.

Covered: fp16, dense and packed sequences and a cache of keys, causal and not, grouped heads, uneven lengths, head dims
40, 64 and 128. Not covered: bf16, which the interpreter cannot do, and the compiled code; the GPU gate runs that.
"""

from __future__ import annotations

from wheelfactory.build.environments import interpreter_requirements, make_interpreter_environment
from wheelfactory.core.progress import logger
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import find_cell_limits
from wheelfactory.verify.numbers import (
    NUMBERS_PROGRAM,
    TIMEOUT_S,
    TOLERANCES,
    NumericReport,
    find_numeric_faults,
    numeric_gate_result,
)
from wheelfactory.verify.proofs import (
    ProofCache,
    ProofKey,
    payload_sha256,
    program_environ,
    run_program,
    stand_in_environment,
    stand_in_requirements,
    stand_in_torch_version,
)
from wheelfactory.verify.result import GateResult

WHERE = "in Triton's interpreter"


def check_in_interpreter(subject: Subject) -> GateResult:
    """Run the kernels in the interpreter of the cell's Triton, unless a proof is kept of that."""
    answer, computed = compute(subject), f"Triton {subject.triton}"
    versions = {"torch": stand_in_torch_version(), "triton": subject.triton}
    return numeric_gate_result(subject, "interpreter", answer, WHERE, computed, find_cell_limits(subject), versions)


def compute(subject: Subject) -> NumericReport | str:
    """What the kernels compute in the interpreter, kept if it is right; or why they compute nothing."""
    arguments = ("flash_attn", "cpu", "small", *(limit.argument for limit in find_cell_limits(subject)))
    beside = (*stand_in_requirements(subject.triton), *interpreter_requirements())
    question = ProofKey(NUMBERS_PROGRAM, arguments, payload_sha256(subject.wheel), beside)
    proofs, file, standard = (
        ProofCache(subject.cache / "proofs"),
        subject.wheel.path.name,
        TOLERANCES[subject.cell.backend],
    )
    kept = proofs.find(question, NumericReport)
    if kept is not None and not any(find_numeric_faults(file, standard, kept, WHERE)):
        return kept
    environ = {**program_environ(subject.environ, subject.cell.backend), "TRITON_INTERPRET": "1"}
    numpy = make_interpreter_environment(subject.cache)
    logger.info("computing with the interpreter of Triton %s", subject.triton)
    with stand_in_environment(subject.cache, subject.wheel, subject.triton, numpy) as environment:
        home = environment.folder / "home"
        answer = run_program(question.command, NumericReport, environment, environ, scratch=home, timeout=TIMEOUT_S)
    if isinstance(answer, NumericReport) and not any(find_numeric_faults(file, standard, answer, WHERE)):
        proofs.write(question, answer)
    return answer
