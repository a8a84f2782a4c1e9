"""Gates of flash-attention-amd: it imports with torch alone, and computes within upstream's tolerance on the CPU.

Their programs run with the wheel and a CPU torch, and their reports are cached as proofs. They compute the small cases
of `validate`, which runs more on GPUs.
"""

from __future__ import annotations

from collections.abc import Callable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from wheelfactory.build.environments import (
    PYTHON,
    Base,
    build_requirements,
    cpu_torch_requirement,
    make_build_environment,
)
from wheelfactory.build.products import PACKAGE
from wheelfactory.core.files import file_sha256
from wheelfactory.core.progress import logger
from wheelfactory.verify.accuracy import (
    FALLBACK_TOLERANCE,
    NUMBERS_PROGRAM,
    TIMEOUT_S,
    NumericReport,
    find_numeric_faults,
    worst_errors,
)
from wheelfactory.verify.gate import ProductSubject
from wheelfactory.verify.importing import Imported, import_findings
from wheelfactory.verify.proofs import (
    IMPORT_PROGRAM,
    AnyReport,
    ProofCache,
    ProofKey,
    device_environ,
    install_and_run,
    payload_sha256,
    stand_in_torch_version,
)
from wheelfactory.verify.result import Finding, GateResult

ENVIRONMENT = (f"Python {PYTHON}", *build_requirements())
"""What the report of a program depends on besides the wheel."""


def run_or_reuse(
    subject: ProductSubject, key: ProofKey, kind: type[AnyReport], is_good: Callable[[AnyReport], bool]
) -> AnyReport | str:
    """Return the report of a program, from the cache or by running it; or the reason why it failed.

    Only reports that pass `is_good` are cached, and a cached report is checked again. Raises `BuildError` if the CPU
    torch cannot be installed.
    """
    proofs = ProofCache(subject.cache / "proofs")
    return proofs.find(key, kind, is_good) or proofs.keep(key, _run(subject, key, kind), is_good)


def _run(subject: ProductSubject, key: ProofKey, kind: type[AnyReport]) -> AnyReport | str:
    base, environ = Base.of(make_build_environment(subject.cache)), device_environ(subject.context.environ)
    logger.info("running %s with %s", key.program.stem.replace("_", " "), subject.wheel.path.name)
    return install_and_run(subject, key.command, kind, base, environ, TIMEOUT_S)


_REMEDY = "fix the package: its results are wrong with this torch"


def check_fallback_accuracy(subject: ProductSubject) -> GateResult:
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


def _findings(subject: ProductSubject, report: NumericReport | str) -> list[Finding]:
    found = find_numeric_faults(subject.wheel.path.name, FALLBACK_TOLERANCE, report, "on the CPU")
    return [finding.model_copy(update={"remedy": _REMEDY}) for finding in found]


# the build requirements that a Python with torch has anyway: torch 2.13 requires setuptools
_OF_TORCH = frozenset({"torch", "setuptools"})


def check_fallback_import(subject: ProductSubject) -> GateResult:
    """Import as users do, unless a cached result exists for a wheel with the same bytes.

    Raises `BuildError` if the CPU torch cannot be installed.
    """
    wheel = subject.wheel
    # the whole file, not the payload: pip reads the metadata too
    own, *beside = map(file_sha256, subject.wheels())
    key = ProofKey(IMPORT_PROGRAM, ("fallback", wheel.name, *_hidden_packages()), own, (*ENVIRONMENT, *beside))

    def findings(report: Imported | str) -> list[Finding]:
        return list(import_findings(wheel, report, "fix the package: it must import with torch alone"))

    report = run_or_reuse(subject, key, Imported, lambda imported: not findings(imported))
    return GateResult.from_findings("import", findings(report), cpu_torch_requirement())


def _hidden_packages() -> tuple[str, ...]:
    """Return the packages that the test environment has, but a user may not have."""
    names = (canonicalize_name(Requirement(line).name) for line in build_requirements())
    return tuple(sorted(name for name in names if name not in _OF_TORCH))
