"""Build a raw wheel by upstream's unpatched setup.py: the variables that make it build a cell (a recipe), and its run.

It runs through build_rocm.sh, on this machine or in a container.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.build.executor import BuildCommand, BuildHost
from wheelfactory.build.sources import Source, unpack_source
from wheelfactory.core.cell import Backend, Cell, same_rocm
from wheelfactory.core.errors import BuildError, InputError, SourceError
from wheelfactory.core.files import BUILD_SCRIPT, TOOLCHAIN_PROBE, read_file
from wheelfactory.core.host import Host
from wheelfactory.core.label import Label
from wheelfactory.core.models import parse_model
from wheelfactory.core.progress import ProgressCallback, ignore_progress, logger
from wheelfactory.matrix.facts import Matrix
from wheelfactory.wheel.read import Toolchain

# memory to allow for a compile: 1.25 GiB is the largest measured (Debian's clang 21, without a precompiled header; 1.17
# with one), and hipcc with its driver takes 0.1. If a compiler needs more and Linux kills one, the number of jobs is
# halved (kernels/compiler/schedule.py)
GIB_PER_COMPILE = 1.4


@dataclass(frozen=True)
class Recipe:
    """How to build one cell: variables for setup.py, and what the wheel will promise."""

    cell: Cell
    archs: tuple[str, ...]
    jobs: int

    @property
    def label(self) -> Label:
        """The label of the wheel."""
        return Label.from_cell(self.cell)

    @property
    def setup_variables(self) -> dict[str, str]:
        """Variables that setup.py of every release reads."""
        # measured: without FORCE_BUILD it downloads a CUDA wheel, and the default of GPU_ARCHS is never safe
        common = {"BUILD_TARGET": "rocm", "FLASH_ATTENTION_FORCE_BUILD": "TRUE"}
        if self.cell.uses_aiter:
            # with the Triton backend, setup.py pip-installs its copy of aiter; it packages the same files without
            return {**common, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE", "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}
        if self.cell.backend is Backend.TRITON:
            # one build serves all labels, so the label is added afterwards
            return {**common, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"}
        return {
            **common,
            "FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE",
            "FLASH_ATTN_LOCAL_VERSION": str(self.label),
            "GPU_ARCHS": ";".join(self.archs),
            "MAX_JOBS": str(self.jobs),
        }


def make_recipe(matrix: Matrix, cell: Cell, host: Host, environ: Mapping[str, str], *, local_build: bool) -> Recipe:
    """Make the recipe of a cell on a machine.

    ``MAX_JOBS`` in `environ` sets the number of compiles. A `local_build` is for the archs in ``PYTORCH_ROCM_ARCH``,
    else for the machine's GPU; any other is for all archs of the cell. Raises `InputError` for an unsupported arch,
    `BuildError` for a CK cell without its ROCm.
    """
    archs = matrix.archs(cell)
    if local_build:
        archs = choose_archs(matrix, cell, environ.get("PYTORCH_ROCM_ARCH", ""), host.gpu_archs)
    _refuse_without_rocm(matrix, cell, host, local_build=local_build)
    return Recipe(cell, archs, choose_jobs(environ.get("MAX_JOBS", ""), default_jobs(host.cores, host.memory_gib)))


def _refuse_without_rocm(matrix: Matrix, cell: Cell, host: Host, *, local_build: bool) -> None:
    if cell.backend is Backend.TRITON:
        return
    what = f"cannot build {cell.id} here"
    if host.rocm is None:
        hint = "start Docker or podman, or build on a machine with ROCm (set ROCM_PATH if it is not in /opt/rocm)"
        if local_build and matrix.flash_attn[cell.flash_attn].triton:
            hint += ", or use the Triton backend: --backend triton"
        raise BuildError(what, "CK kernels need hipcc and this machine has no ROCm", hint)
    if not same_rocm(host.rocm, cell.rocm):
        which = f"this machine has ROCm {host.rocm}, the cell needs {cell.rocm}"
        hint = f"name ROCm {host.rocm} (or auto), or set ROCM_PATH to a ROCm {cell.rocm}"
        raise BuildError(what, which, hint)


def choose_archs(matrix: Matrix, cell: Cell, requested: str, detected: tuple[str, ...]) -> tuple[str, ...]:
    """The offload archs to build for: the requested ones, else the archs of the GPUs, else all of the cell.

    `requested` is the text of PYTORCH_ROCM_ARCH or ``--archs``, separated by ``;``, ``,`` or spaces. Raises
    `InputError` for an arch that upstream's setup.py refuses.
    """
    promised = matrix.archs(cell)
    requested_archs = tuple(dict.fromkeys(re.findall(r"[^;,\s]+", requested)))
    chosen = requested_archs or (detected if cell.backend is Backend.CK else ())
    refused = [arch for arch in chosen if arch not in promised]
    if refused:
        named = "--archs requests it, or PYTORCH_ROCM_ARCH (rocm/pytorch images set it)"
        origin = named if requested_archs else "this machine's GPU has it"
        triton, other = matrix.flash_attn[cell.flash_attn].triton, ""
        if cell.backend is Backend.CK and triton and all(arch in triton.archs for arch in refused):
            other = "; the Triton backend supports it (--backend triton)"
        what = f"flash-attn {cell.flash_attn} {cell.backend} on ROCm {cell.rocm} does not support"
        raise InputError(what, ", ".join(refused), f"{origin}; supported: {';'.join(promised)}{other}")
    # Triton compiles on the user's machine, so its wheel is always for all archs
    return chosen if chosen and cell.backend is Backend.CK else promised


def default_jobs(cores: int, free_gib: float) -> int:
    """Default number of parallel compiles: one per core and per `GIB_PER_COMPILE` of free memory, at least one."""
    return max(1, min(cores, int(free_gib / GIB_PER_COMPILE)))


def choose_jobs(requested: str, default: int) -> int:
    """The number of parallel compiles in the text of ``MAX_JOBS``, else `default`. Raises `InputError`."""
    if not requested:
        return default
    if not requested.isascii() or not requested.isdigit() or int(requested) < 1:
        raise InputError("invalid MAX_JOBS", requested, "set it to 1 or more, or unset it")
    return int(requested)


def resolve_rocm_version(matrix: Matrix, host: Host, requested: str) -> str:
    """Resolve a version, or ``auto`` for this machine's, to a ROCm version of the matrix.

    A patch release without its own entry resolves to its minor version (7.2.1 to 7.2). Raises `InputError` if there is
    none.
    """
    version = requested
    if requested == "auto":
        if host.rocm is None:
            raise InputError("no ROCm found on this machine", "auto", "set ROCM_PATH, or name the version, such as 6.4")
        version = host.rocm
    minor = ".".join(version.split(".")[:2])
    for candidate in (version, minor):
        if candidate in matrix.rocm:
            return candidate
    raise InputError("unknown ROCm version", version, f"matrix.yaml has: {', '.join(matrix.rocm)}")


@dataclass(frozen=True)
class RawWheel:
    """A wheel as setup.py made it, and the toolchain of the build."""

    path: Path
    toolchain: Toolchain


@dataclass(frozen=True)
class SetupRun:
    """One run of setup.py. `scratch` is a folder for its files alone; its output goes to `log`."""

    recipe: Recipe
    source: Source
    build_host: BuildHost
    scratch: Path
    log: Path
    report_progress: ProgressCallback = ignore_progress


@dataclass(frozen=True)
class SetupExtras:
    """What a run of setup.py needs beyond its recipe: variables, paths and a deadline (see `BuildCommand`)."""

    environ: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    deadline: float | None = None


def run_setup(setup: SetupRun, extras: SetupExtras) -> RawWheel:
    """Run setup.py, and return the wheel.

    Raises `BuildError` with the last lines and the path of the log, `SourceError` if the sources cannot be unpacked or
    setup.py reads other variables, `RunAgainError` at the deadline.
    """
    raw, source = setup.scratch / "raw", unpack_source(setup.source, setup.scratch / "source")
    _require_read(setup.recipe, source / "setup.py")
    command = BuildCommand(
        name=setup.log.stem,
        argv=(str(BUILD_SCRIPT),),
        environ={
            **setup.build_host.environ,
            **setup.recipe.setup_variables,
            "SOURCE_DIR": str(source),
            "RAW_DIR": str(raw),
            "BUILD_PYTHON": str(setup.build_host.python),
            "SOURCE_DATE_EPOCH": str(setup.source.epoch),
            "PYTHONNOUSERSITE": "1",
            **extras.environ,
        },
        log=setup.log,
        reads=(BUILD_SCRIPT, TOOLCHAIN_PROBE, source, *extras.reads),
        writes=(setup.scratch, *extras.writes),
        deadline=extras.deadline,
    )
    logger.info("running setup.py, log in %s", setup.log)
    wheels = setup.build_host.run(command, setup.report_progress).splitlines()
    if len(wheels) != 1:
        raise BuildError("setup.py made no wheel", setup.recipe.cell.id, f"the full log is {setup.log}")
    probed = raw / "toolchain.json"
    refusal = BuildError("damaged toolchain file", str(probed), f"build the wheel again; the full log is {setup.log}")
    return RawWheel(Path(wheels[0]), parse_model(Toolchain, read_file(probed, refusal), refusal))


def _require_read(recipe: Recipe, setup_py: Path) -> None:
    """Raise `SourceError` unless setup.py has the name of each variable that the recipe sets to more than FALSE."""
    text = setup_py.read_text(encoding="utf-8", errors="replace")
    unread = [name for name, value in recipe.setup_variables.items() if value != "FALSE" and name not in text]
    if unread:
        which = f"{', '.join(unread)}, for {recipe.cell.id}"
        hint = "find the new names in the sources, and change build/setup_py.py"
        raise SourceError("setup.py of this release does not read", which, hint)


def log_path(cache: Path, name: str) -> Path:
    """The path of a build log."""
    return cache / "logs" / f"{name}.log"
