"""List the compiles of a build instead of running them, so that the factory can have them run elsewhere.

Runs beside the compiler. The factory reads the result as a JSON file; paths in it are those of this build host.
``python -ISB survey.py HIPCC`` prints `worker_compiler`, for a worker to announce.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

# last, so that packages installed beside ours cannot shadow modules of this Python
sys.path.append(str(Path(__file__).resolve().parents[3]))

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.strict import parse_record
from wheelfactory.kernels.compiler.commands import PLACEHOLDER, read_driver_bundler
from wheelfactory.kernels.compiler.hipcc import read_compiler, rocm_root, run_tool
from wheelfactory.kernels.compiler.key import CompileInputs, header_paths, key_environment, rocm_headers_sha256
from wheelfactory.kernels.compiler.objects import CannotComposeError
from wheelfactory.kernels.compiler.request import SURVEYED, CompileRequest, CompileResult, require_supported_archs
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.compiler.targets import is_empty, target_flags, target_options


@dataclass(frozen=True)
class SurveyPart:
    """The compiles for one list of targets."""

    key: SetKey
    command: tuple[str, ...]
    """hipcc and the flags of every source; see `hipcc.kernel_command` for the rest."""
    sources: tuple[str, ...]
    """Names, without those that have no code for the targets: the build host compiles these in no time."""

    @property
    def targets(self) -> tuple[str, ...]:
        """An arch, or ``host``."""
        return tuple(self.key.parts["targets"])


@dataclass(frozen=True)
class Survey:
    """The compiles of a build. Relative paths are below `root`, a copy of the folder in which it compiles kernels."""

    root: str
    headers: tuple[str, ...]
    sources: Mapping[str, str]
    """Relative path by name."""
    compiler: str
    """`Compiler.content`."""
    worker_compiler: str
    """What a worker must have, too: see `worker_compiler`."""
    comment: str
    """What the compiler writes into the section ``.comment`` of its objects."""
    environ: Mapping[str, str]
    """The variables that change objects."""
    parts: tuple[SurveyPart, ...]

    @classmethod
    def read(cls, path: Path) -> Survey:
        """Read the file that `write_survey` wrote."""
        return parse_record(cls, path.read_bytes())


def worker_compiler(content: str, rocm: str) -> str:
    """Identify what makes objects on a worker: `Compiler.content` and ROCm's headers, as a sha256 in hex."""
    return hashlib.sha256(f"{content}\n{rocm_headers_sha256(rocm)}".encode()).hexdigest()


def write_survey(request: CompileRequest, inputs: CompileInputs) -> CompileResult:
    """Write the compiles of the requested targets, or of all, to `request.survey`, and copy their files beside it.

    Raises `BuildError` if the compiler does not support an arch, or if its objects cannot be put together from parts.
    """
    require_supported_archs(inputs.hipcc, inputs.archs, inputs.environ)
    _require_composable(inputs)
    rocm, root = rocm_root(inputs.hipcc), Path(inputs.root)
    headers = [str(path.relative_to(root)) for path in header_paths(inputs.flags, root)]
    sources = {name: os.path.relpath(edge.source, root) for name, edge in inputs.kernels.items()}
    copy = Path(request.survey).with_name("root")
    for name in (*headers, *sources.values()):  # in a container, setup.py runs in a folder of the container
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, copy / name)
    version = run_tool([inputs.hipcc, "--version"], inputs.environ).stdout.splitlines()
    survey = Survey(
        root=str(copy),
        headers=tuple(headers),
        sources=sources,
        compiler=inputs.compiler.content,
        worker_compiler=worker_compiler(inputs.compiler.content, rocm),
        comment=next((line.strip() for line in version if "clang version" in line), ""),  # clang writes it into objects
        environ=key_environment(inputs.environ, rocm),
        parts=tuple(_part(inputs, targets) for targets in inputs.target_lists(request.targets)),
    )
    write_atomic(Path(request.survey), json.dumps(asdict(survey)).encode())
    return CompileResult(SURVEYED, (), tuple(sorted(inputs.kernels)), 0, 0, 0, 0.0)


def _part(inputs: CompileInputs, targets: tuple[str, ...]) -> SurveyPart:
    key, guards = inputs.keys[targets], inputs.guards
    options = (*target_flags(inputs.flags, targets), *target_options(targets, inputs.archs, PLACEHOLDER))
    sources = tuple(name for name in key.sources if not is_empty(guards.get(name, ""), targets))
    return SurveyPart(key, (inputs.hipcc, *options), sources)


def _require_composable(inputs: CompileInputs) -> None:
    try:
        read_driver_bundler(inputs, Path.cwd(), inputs.archs)
    except CannotComposeError as error:
        hint = "compile whole objects with each cell: build without --remote"
        raise BuildError("this compiler's objects cannot be put together", str(error), hint) from None


def main(arguments: list[str]) -> int:
    """Print what a worker with this hipcc announces, and return the exit status."""
    if len(arguments) != 1:
        print("error: bad arguments: give the path of hipcc", file=sys.stderr)
        return 2
    hipcc = arguments[0]
    try:
        compiler = read_compiler(hipcc, os.environ)
    except OSError as error:
        print(f"error: cannot start the compiler: {hipcc}: {error.strerror}", file=sys.stderr)
        return 1
    print(worker_compiler(compiler.content, rocm_root(hipcc)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
