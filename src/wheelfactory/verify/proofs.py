"""Run programs with a wheel's code, and cache their reports; the key has everything that affects a report."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from wheelfactory.build.environments import (
    PYTHON,
    Base,
    Environment,
    build_requirements,
    cpu_torch_requirement,
    make_build_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.build.executor import HERE, GateRunner, WheelProgram
from wheelfactory.build.products import PinnedProject
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import PACKAGE_DIR, file_sha256, write_atomic
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.process import failure_reason
from wheelfactory.core.progress import logger
from wheelfactory.verify.gate import ProductSubject, Subject
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.read import Wheel

PROGRAMS = Path(__file__).with_name("programs")
IMPORT_PROGRAM = PROGRAMS / "import_package.py"

# prefixes of the variables that a program gets; dozens of others change what Triton, LLVM and upstream do
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HIP_", "HSA_", "ROCM_", "ROCR_")

PROGRESS_PREFIX = "at: "
_CASE = re.compile(f"^{PROGRESS_PREFIX}".encode(), re.MULTILINE)
"""Prefix of a line on stderr that names the next step of a program; shown if a signal ends it there."""


class ProgramReport(FrozenModel):
    """The JSON that a program prints as its last line."""


AnyReport = TypeVar("AnyReport", bound=ProgramReport)


def content_id(program: Path) -> str:
    """Hash a program together with its folder, because programs import each other."""
    # all siblings: check_numbers.py imports attention_cases.py, and a stale proof is worse than a repeated run
    siblings = (file_sha256(path) for path in sorted(program.parent.glob("*.py")))
    return f"{program.name} sha256:{hashlib.sha256(''.join(siblings).encode()).hexdigest()}"


@dataclass(frozen=True)
class ProofKey:
    """Everything that the report of a program depends on; wheels that differ only in their label share a report."""

    program: Path
    arguments: tuple[str, ...]
    payload: str
    """`payload_sha256` of the wheel."""
    environment: tuple[str, ...]
    """What else the report depends on, such as `stand_in_requirements`."""

    @property
    def command(self) -> tuple[str | Path, ...]:
        """The program and its arguments."""
        return (self.program, *self.arguments)


@dataclass(frozen=True)
class ProofCache:
    """Reports of programs in a folder, one JSON file each, named by the sha256 of the key."""

    folder: Path

    def find(self, key: ProofKey, kind: type[AnyReport], is_right: Callable[[AnyReport], bool]) -> AnyReport | None:
        """Return the cached report for a key; None if it is missing or damaged, or if it is not right by now."""
        with suppress(OSError, ValueError):
            found = kind.model_validate_json(self._path(key).read_bytes())
            return found if is_right(found) else None
        return None

    def keep(self, key: ProofKey, report: AnyReport | str, is_right: Callable[[AnyReport], bool]) -> AnyReport | str:
        """Return a report, and write it if it is right; replace an existing one."""
        # a failure can be the machine's (memory, a full disk), so it is retried
        if not isinstance(report, str) and is_right(report):
            write_atomic(self._path(key), report.model_dump_json(indent=1).encode())
        return report

    def _path(self, key: ProofKey) -> Path:
        text = json.dumps([content_id(key.program), key.arguments, key.payload, key.environment])
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def payload_sha256(wheel: Wheel) -> str:
    """Return a sha256 over names and contents of all members outside of dist-info; the label does not change it."""
    digest = hashlib.sha256()
    with open_archive(wheel.path) as archive:
        for name in sorted(wheel.sizes):
            if not name.startswith(f"{wheel.dist_info}/"):
                digest.update(name.encode() + b"\0" + hashlib.sha256(archive.read(name)).digest())
    return digest.hexdigest()


def run_program(
    command: Sequence[str | Path],
    kind: type[AnyReport],
    python: Path,
    environ: Mapping[str, str],
    *,
    scratch: Path,
    timeout: float,
    report_cases: Callable[[int], None] = lambda _: None,
    runner: GateRunner = HERE,
    reads: Sequence[Path] = (),
) -> AnyReport | str:
    """Run a program with an environment's Python and return its report, or an error message.

    `scratch` is its working and home folder; `timeout` is in seconds. `report_cases` gets the number of cases that are
    done, now and then. `reads` are the folders of the environment, for a runner that shows it nothing else.
    """

    def look(_output: bytes, errors: bytes) -> None:
        report_cases(max(0, len(_CASE.findall(errors)) - 1))

    scratch.mkdir(parents=True, exist_ok=True)
    own = dict.fromkeys(("HOME", "TMPDIR", "TRITON_CACHE_DIR"), str(scratch))
    own["OMP_NUM_THREADS"] = "1"  # several programs run in parallel, and the order of sums must not depend on cores
    argv = (str(python), "-I", "-B", *map(str, command))  # isolated: no user site, no PYTHON* variables
    try:
        done = runner.run_wheel(WheelProgram(argv, {**environ, **own}, (PACKAGE_DIR, *reads), scratch, timeout, look))
    except subprocess.TimeoutExpired:
        return f"timed out after {timeout:.0f} seconds"
    for line in dict.fromkeys(line for line in done.stderr.splitlines() if line.startswith("error: ")):
        logger.info("%s", line)  # LLVM's message; its Python exception does not contain it
    return _describe_failure(done) if done.returncode else read_report(done.stdout, kind)


def read_report(output: str, kind: type[AnyReport]) -> AnyReport | str:
    """Return the report in the last line of a program's output, or that it has none."""
    try:
        return kind.model_validate_json(output.splitlines()[-1])
    except (ValueError, LookupError):
        return "it exited with 0, but printed no report"


def install_and_run(
    subject: Subject | ProductSubject,
    command: Sequence[str | Path],
    kind: type[AnyReport],
    base: Base,
    environ: Mapping[str, str],
    timeout: float,
) -> AnyReport | str:
    """Install a wheel on `base`, with what it requires, and `run_program` there; if pip refuses it, return why."""
    wheels = subject.wheels()
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(open_wheel_environment(subject.cache, base, *wheels))
        except BuildError as error:
            return error.which.splitlines()[-1]
        home, reads, runner = environment.folder / "home", environment.reads, subject.runner
        return run_program(
            command, kind, environment.python, environ, scratch=home, timeout=timeout, runner=runner, reads=reads
        )


def _describe_failure(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a program failed; after a signal, also its last step on stderr."""
    if done.returncode > 0:
        return failure_reason(done)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    at = [line for line in lines[:-2] if line.startswith(PROGRESS_PREFIX)][-1:]  # GPU faults print many lines after it
    return "; ".join([failure_reason(done), *at, *lines[-2:]])


def stand_in_requirements(triton: str, required: Iterable[PinnedProject] = ()) -> tuple[str, ...]:
    """Return what replaces ROCm's torch and Triton on machines without ROCm: a CPU torch, and Triton from PyPI.

    With the sources and the changes of the products that the wheel requires.
    """
    pinned = (part for one in required for part in (f"{one.wheel} of {one.identity}", *one.finished_by))
    return (f"Python {PYTHON}", *build_requirements(), f"triton=={triton}", *pinned)


def stand_in_torch_version() -> str:
    """Return the version of the torch that replaces ROCm's, such as ``2.13.0+cpu``."""
    return cpu_torch_requirement().removeprefix("torch==")


def stand_in_base(subject: Subject, *more: Environment) -> Base:
    """Return the Python with `stand_in_requirements`, and the packages of `more`. Raises `BuildError`."""
    return Base.of(make_build_environment(subject.cache), make_triton_environment(subject.cache, subject.triton), *more)


def program_environ(environ: Mapping[str, str], cell: Cell) -> dict[str, str]:
    """Return `device_environ`, and the variable that selects the Triton kernels of flash-attn itself."""
    found, own = device_environ(environ), cell.backend is Backend.TRITON and not cell.uses_aiter
    return {**found, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"} if own else found


def device_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return only the variables that locate programs, libraries and GPUs."""
    return {name: value for name, value in environ.items() if name.startswith(_PASSED_ON)}
