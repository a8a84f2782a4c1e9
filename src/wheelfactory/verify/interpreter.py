"""Gate: the Triton kernels of a wheel compute attention and its gradients in Triton's interpreter on the CPU.

Covered: fp16, dense and packed sequences, a KV cache, causal and not, grouped heads, uneven lengths, head dims 40, 64
and 128. Not covered: bf16, which the interpreter does not support, and the compiled code (see the gate `gpu`).
"""

from __future__ import annotations

from typing import TypeGuard

from wheelfactory.build.environments import interpreter_requirements, make_interpreter_environment
from wheelfactory.core.progress import logger
from wheelfactory.verify.accuracy import (
    NUMBERS_PROGRAM,
    TIMEOUT_S,
    NumericReport,
    find_numeric_faults,
    find_tolerance,
    numeric_gate_result,
)
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import find_cell_limits
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
from wheelfactory.wheel.activation.options import refused_options

DEVICE_PHRASE = "in Triton's interpreter"


def check_in_interpreter(subject: Subject) -> GateResult:
    """Run the kernels in the interpreter of the cell's Triton, unless a cached result exists.

    Raises `BuildError` if torch or Triton cannot be installed.
    """
    report, computed = compute(subject), f"Triton {subject.triton}"
    versions = {"torch": stand_in_torch_version(), "triton": subject.triton}
    return numeric_gate_result(
        subject, "interpreter", report, DEVICE_PHRASE, computed, find_cell_limits(subject), versions
    )


def compute(subject: Subject) -> NumericReport | str:
    """Return the cached or new report of the kernels, or the reason why they failed; cache a report without faults."""
    arguments = ("flash_attn", "cpu", "small", *(limit.argument for limit in find_cell_limits(subject)))
    environment_parts = (*stand_in_requirements(subject.triton, subject.aiter), *interpreter_requirements())
    key = ProofKey(NUMBERS_PROGRAM, arguments, payload_sha256(subject.wheel), environment_parts)
    file, tolerance, refused = subject.wheel.path.name, find_tolerance(subject.cell), refused_options(subject.cell)

    def is_right(report: NumericReport | str | None) -> TypeGuard[NumericReport]:
        faults = find_numeric_faults(file, tolerance, report, DEVICE_PHRASE, refused) if report else ()
        return isinstance(report, NumericReport) and not any(faults)

    proofs = ProofCache(subject.cache / "proofs")
    cached = proofs.find(key, NumericReport)
    if is_right(cached):
        return cached
    environ = {**program_environ(subject.environ, subject.cell), "TRITON_INTERPRET": "1"}
    numpy = make_interpreter_environment(subject.cache)
    logger.info("computing with the interpreter of Triton %s", subject.triton)
    with stand_in_environment(subject, numpy) as environment:
        home = environment.folder / "home"
        report = run_program(key.command, NumericReport, environment, environ, scratch=home, timeout=TIMEOUT_S)
    if is_right(report):
        proofs.write(key, report)
    return report
