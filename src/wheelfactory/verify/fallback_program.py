"""Run programs with a wheel of flash-attention-amd and a CPU torch, and cache their reports as proofs."""

from __future__ import annotations

from collections.abc import Callable

from wheelfactory.build.environments import PYTHON, build_requirements, make_build_environment, open_wheel_environment
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.verify.accuracy import TIMEOUT_S
from wheelfactory.verify.gate import FallbackSubject
from wheelfactory.verify.proofs import AnyReport, ProofCache, ProofKey, run_program

ENVIRONMENT = (f"Python {PYTHON}", *build_requirements())
"""What the report of a program depends on besides the wheel."""

_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")


def run_or_reuse(
    subject: FallbackSubject, key: ProofKey, kind: type[AnyReport], is_good: Callable[[AnyReport], bool]
) -> AnyReport | str:
    """Return the report of a program, from the cache or by running it; or the reason why it failed.

    Only reports that pass `is_good` are cached, and a cached report is checked again. Raises `BuildError` if the CPU
    torch cannot be installed.
    """
    proofs = ProofCache(subject.cache / "proofs")
    cached = proofs.find(key, kind)
    if cached is not None and is_good(cached):
        return cached
    report = _run(subject, key, kind)
    if not isinstance(report, str) and is_good(report):
        proofs.write(key, report)
    return report


def _run(subject: FallbackSubject, key: ProofKey, kind: type[AnyReport]) -> AnyReport | str:
    environ = {name: subject.environ[name] for name in _PASSED_ON if name in subject.environ}
    torch = make_build_environment(subject.cache)
    layers = [torch.site_packages]
    logger.info("running %s with %s", key.program.stem.replace("_", " "), subject.wheel.path.name)
    try:
        with open_wheel_environment(
            subject.cache, subject.wheel.path, torch.python, torch.version, layers
        ) as environment:
            home = environment.folder / "home"
            return run_program(key.command, kind, environment, environ, scratch=home, timeout=TIMEOUT_S)
    except BuildError as error:  # pip could not install the wheel
        return error.which.splitlines()[-1]
