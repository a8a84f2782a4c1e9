"""Programs that run with the code of a wheel, and what they showed, kept by everything that it depends on."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from wheelfactory.build.environments import (
    PYTHON,
    Environment,
    build_requirements,
    cpu_torch_requirement,
    make_build_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.cell import Backend
from wheelfactory.core.digest import file_sha256
from wheelfactory.core.files import write_atomic
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.process import failure_reason, run
from wheelfactory.core.progress import logger
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.read import Wheel

PROGRAMS = Path(__file__).with_name("programs")

_HANDED = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HIP_", "HSA_", "ROCM_", "ROCR_")
"""Beginnings of the variables that a program gets. Triton, LLVM and upstream read dozens that change what they do."""

PROGRESS_PREFIX = "at: "
"""Begins a line on stderr with which a program says what it does next, in case that ends it."""


class ProgramReport(FrozenModel):
    """What a program prints as the last line of its output."""


AnyReport = TypeVar("AnyReport", bound=ProgramReport)


def content_id(program: Path) -> str:
    """A program, so that another version of it, or of what it may import from its folder, is another one."""
    siblings = (file_sha256(path) for path in sorted(program.parent.glob("*.py")))
    return f"{program.name} sha256:{hashlib.sha256(''.join(siblings).encode()).hexdigest()}"


@dataclass(frozen=True)
class ProofKey:
    """One run of a program with a wheel. Equal questions have equal answers, whatever the label of the wheel."""

    program: Path
    arguments: tuple[str, ...]
    payload: str
    """`payload_sha256` of the wheel."""
    environment: tuple[str, ...]
    """What else its answer depends on, such as `stand_in` says it."""

    @property
    def command(self) -> tuple[str | Path, ...]:
        """The program and its arguments."""
        return (self.program, *self.arguments)

    @property
    def identity(self) -> dict[str, object]:
        """All of it as plain values, the program by its content."""
        return {
            "program": content_id(self.program),
            "arguments": list(self.arguments),
            "payload": f"sha256:{self.payload}",
            "environment": list(self.environment),
        }


@dataclass(frozen=True)
class ProofCache:
    """Reports of programs in a folder, one JSON file each, named by the sha256 of the question.

    Only a report that a gate was content with is kept. What went wrong may be the fault of the machine (memory, a full
    disk, an interrupted download), which no report can tell from that of a kernel; it is rare, and asked again.
    """

    folder: Path

    def find(self, question: ProofKey, kind: type[AnyReport]) -> AnyReport | None:
        """The report that was kept for a question; None if there is none, or none that can be read."""
        try:
            kept = json.loads(self._path(question).read_bytes())
            return kind.model_validate(kept["report"]) if kept["question"] == question.identity else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write(self, question: ProofKey, report: ProgramReport) -> None:
        """Keep a report, in place of whatever is there."""
        kept = {"question": question.identity, "report": report.model_dump(mode="json")}
        write_atomic(self._path(question), json.dumps(kept, indent=1).encode())

    def _path(self, question: ProofKey) -> Path:
        text = json.dumps(question.identity, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def payload_sha256(wheel: Wheel) -> str:
    """One sha256 over names and contents of all members outside of dist-info: labels share what only they differ in."""
    digest = hashlib.sha256()
    with open_archive(wheel.path) as archive:
        for name in sorted(wheel.sizes):
            if not name.startswith(f"{wheel.dist_info}/"):
                digest.update(name.encode() + b"\0" + hashlib.sha256(archive.read(name)).digest())
    return digest.hexdigest()


class HasPython(Protocol):
    """What has a Python to run programs with: an environment, or the Python of a user."""

    @property
    def python(self) -> Path:
        """The interpreter."""


def run_program(
    command: Sequence[str | Path],
    kind: type[AnyReport],
    environment: HasPython,
    environ: Mapping[str, str],
    *,
    scratch: Path,
    timeout: float,
) -> AnyReport | str:
    """Run a program with the Python of an environment, in the folder `scratch`, which is made for it.

    Gives its report; or why there is none, if it does not end well within `timeout` seconds. Nothing is known of the
    wheel then, but that it did not pass.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    own = dict.fromkeys(("HOME", "TMPDIR", "TRITON_CACHE_DIR"), str(scratch))
    own["OMP_NUM_THREADS"] = "1"  # several programs run at once, and sums come out the same on every machine
    program = [environment.python, "-I", "-B", *command]
    try:
        done = run(program, environ={**environ, **own}, cwd=scratch, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"nothing after {timeout:.0f} seconds"
    for line in dict.fromkeys(line for line in done.stderr.splitlines() if line.startswith("error: ")):
        logger.info("%s", line)  # LLVM's own words; what it raises in Python is only that something failed
    if done.returncode:
        return _last_words(done)
    try:
        return kind.model_validate(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, LookupError):
        return "it ended as if all were well, without a report"


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Why a program failed; of one that a signal ended also what it was at, which it says on stderr."""
    if done.returncode > 0:
        return failure_reason(done)
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    at = [line for line in said[:-2] if line.startswith(PROGRESS_PREFIX)][-1:]  # a GPU's fault has many words
    return "; ".join([failure_reason(done), *at, *said[-2:]])


def stand_in_requirements(triton: str) -> tuple[str, ...]:
    """What is in place of ROCm's torch and Triton where there is no ROCm: a CPU torch, and Triton from PyPI."""
    return (f"Python {PYTHON}", *build_requirements(), f"triton=={triton}")


def stand_in_torch_version() -> str:
    """The version of the torch in place of ROCm's, such as ``2.13.0+cpu``."""
    return cpu_torch_requirement().removeprefix("torch==")


@contextmanager
def stand_in_environment(cache: Path, wheel: Wheel, triton: str, *more: Environment) -> Iterator[Environment]:
    """A wheel installed into what `stand_in` says, and more. Raises `BuildError` if something cannot be had."""
    torch = make_build_environment(cache)
    layers = [torch, make_triton_environment(cache, triton), *more]
    folders = [layer.site_packages for layer in layers]
    with open_wheel_environment(cache, wheel.path, torch.python, torch.version, folders) as environment:
        yield environment


def program_environ(environ: Mapping[str, str], backend: Backend) -> dict[str, str]:
    """The variables that find programs, libraries and GPUs, and the one that selects the Triton backend."""
    found = device_environ(environ)
    return {**found, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"} if backend is Backend.TRITON else found


def device_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that find programs, libraries and GPUs."""
    return {name: value for name, value in environ.items() if name.startswith(_HANDED)}
