"""Programs that run with a wheel of flash-attention-amd, beside a CPU torch, and what they showed, kept as proofs."""

from __future__ import annotations

from collections.abc import Callable

from wheelfactory.build.environments import PYTHON, build_environment, build_requirements, wheel_environment
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.numbers import TIMEOUT
from wheelfactory.verify.proofs import AnyReport, Proofs, Question, ask

ENVIRONMENT = (f"Python {PYTHON}", *build_requirements())
"""What the answer of a program depends on beside the wheel."""

_HANDED = ("PATH", "LD_LIBRARY_PATH")


def answer(
    subject: FallbackSubject, question: Question, kind: type[AnyReport], is_good: Callable[[AnyReport], bool]
) -> AnyReport | str:
    """What a program says of a wheel, as it is kept or else as it is run now; or why it says nothing.

    A report is kept if `is_good`; one that was kept and is not good any more is asked for again. Raises `BuildError`
    if no CPU torch can be had.
    """
    proofs = Proofs(subject.cache / "proofs")
    kept = proofs.find(question, kind)
    if kept is not None and is_good(kept):
        return kept
    said = _run(subject, question, kind)
    if not isinstance(said, str) and is_good(said):
        proofs.keep(question, said)
    return said


def _run(subject: FallbackSubject, question: Question, kind: type[AnyReport]) -> AnyReport | str:
    environ = {name: subject.environ[name] for name in _HANDED if name in subject.environ}
    torch = build_environment(subject.cache)
    layers = [torch.site_packages]
    logger.info("running %s with %s", question.program.stem.replace("_", " "), subject.wheel.path.name)
    try:
        with wheel_environment(subject.cache, subject.wheel.path, torch.python, torch.version, layers) as environment:
            home = environment.folder / "home"
            return ask(question.command, kind, environment, environ, scratch=home, timeout=TIMEOUT)
    except BuildError as error:  # of pip
        return error.which.splitlines()[-1]
