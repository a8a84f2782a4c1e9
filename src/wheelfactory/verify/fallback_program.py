"""Programs that run with a wheel of flash-attention-amd, beside a CPU torch, and what they showed, kept as proofs."""

from __future__ import annotations

from collections.abc import Callable

from wheelfactory.build.environments import PYTHON, build_requirements, make_build_environment, open_wheel_environment
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.numbers import TIMEOUT_S
from wheelfactory.verify.proofs import AnyReport, ProofCache, ProofKey, run_program

ENVIRONMENT = (f"Python {PYTHON}", *build_requirements())
"""What the answer of a program depends on beside the wheel."""

_HANDED = ("PATH", "LD_LIBRARY_PATH")


def run_or_reuse(
    subject: FallbackSubject, question: ProofKey, kind: type[AnyReport], is_good: Callable[[AnyReport], bool]
) -> AnyReport | str:
    """What a program says of a wheel, as it is kept or else as it is run now; or why it says nothing.

    A report is kept if `is_good`; one that was kept and is not good any more is asked for again. Raises `BuildError`
    if no CPU torch can be had.
    """
    proofs = ProofCache(subject.cache / "proofs")
    kept = proofs.find(question, kind)
    if kept is not None and is_good(kept):
        return kept
    said = _run(subject, question, kind)
    if not isinstance(said, str) and is_good(said):
        proofs.write(question, said)
    return said


def _run(subject: FallbackSubject, question: ProofKey, kind: type[AnyReport]) -> AnyReport | str:
    environ = {name: subject.environ[name] for name in _HANDED if name in subject.environ}
    torch = make_build_environment(subject.cache)
    layers = [torch.site_packages]
    logger.info("running %s with %s", question.program.stem.replace("_", " "), subject.wheel.path.name)
    try:
        with open_wheel_environment(
            subject.cache, subject.wheel.path, torch.python, torch.version, layers
        ) as environment:
            home = environment.folder / "home"
            return run_program(question.command, kind, environment, environ, scratch=home, timeout=TIMEOUT_S)
    except BuildError as error:  # of pip
        return error.which.splitlines()[-1]
