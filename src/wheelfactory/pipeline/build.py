"""Cell -> finished wheel: sources unpacked, build_rocm.sh run, METADATA and label given, auditwheel run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from wheelfactory.build.environments import build_requirements
from wheelfactory.build.executor import Executor
from wheelfactory.build.recipe import Recipe, make_recipe
from wheelfactory.build.setup_py import SetupExtras, SetupRun, log_path, run_setup
from wheelfactory.build.sources import Source, fetch_source
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.digest import content_key
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import atomic_path, scratch_dir
from wheelfactory.core.progress import ProgressPart
from wheelfactory.kernels.compiler.flags import APPEND_VARIABLE
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope, read_outcome, setup_env, store_folder
from wheelfactory.kernels.source_list import list_planned_sources
from wheelfactory.matrix.facts import Matrix
from wheelfactory.wheel.build_record import BuildRecord, Toolchain
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.repair import find_platform
from wheelfactory.wheel.rewrite import finish_wheel, require_matching_wheel


def build_cell(
    executor: Executor,
    cell: Cell,
    folder: Path,
    part: ProgressPart,
    *,
    matrix: Matrix,
    environ: Mapping[str, str],
    cache: Path,
    local_build: bool = False,
    scope: CompileScope = FULL_SCOPE,
) -> Path:
    """Build one cell into `folder` and give the finished wheel; `wanted` says where its kernels may come from.

    Raises `InputError` or `BuildError` before anything is downloaded if the cell cannot be built here,
    `SourceError` for its sources, `BuildError` with the log's place if the build fails, `RunAgainError` if the time
    that was given is up.
    """
    recipe = make_recipe(matrix, cell, executor.describe_host(cell), environ, local_build=local_build)
    release = matrix.flash_attn[cell.flash_attn]
    source = fetch_source(cell.flash_attn, release, cache / "sources", environ)
    if cell.backend is Backend.TRITON:
        payload = _triton_payload(executor, SetupExtras(deadline=scope.deadline), recipe, source, part, cache)
        return finish_raw_wheel(payload, _record(recipe, source, Toolchain()), folder, environ)
    place = executor.prepare_host(cell, part)
    with scratch_dir(cache) as scratch:
        setup, log = SetupRun(recipe, source, place, scratch), log_path(cache, cell.id)
        abi = matrix.torch[cell.torch].cxx11_abi
        kernel_set = KernelSet(cell.flash_attn, cell.rocm, recipe.archs, abi, (cell,))
        planned = list_planned_sources(cell.flash_attn, release, cache, environ)
        appended = environ.get(APPEND_VARIABLE)
        handed = setup_env(setup, kernel_set.id, scope, cache=cache, appended=appended, planned=planned)
        try:  # compile the bindings and the kernels that are not there yet, and link
            raw = run_setup(setup, log, handed, part)
        except BuildError:
            read_outcome(setup, store_folder(cache), log)  # knows better why
            raise
        report = read_outcome(setup, store_folder(cache), log)
        record = _record(recipe, source, raw.toolchain, report.key if report else None)
        return finish_raw_wheel(raw.path, record, folder, environ)


def _record(recipe: Recipe, source: Source, toolchain: Toolchain, kernels: str | None = None) -> BuildRecord:
    return BuildRecord(
        cell=recipe.cell.id,
        label=str(recipe.label),
        offload_archs=recipe.archs,
        source=source.identity,
        kernels=kernels,
        toolchain=toolchain,
    )


def finish_raw_wheel(raw: Path, record: BuildRecord, folder: Path, environ: Mapping[str, str]) -> Path:
    """Give a raw wheel the METADATA, label, build record and platform tag of its cell; write it to `folder`, once.

    Raises `InputError` if `raw` is no wheel or one of another release or label, `VerificationError` if its compiled
    code needs what neither torch nor ROCm nor the system brings.
    """
    require_matching_wheel(Wheel.open(raw), record)  # a wrong file is told as such, whatever auditwheel thinks of it
    platform = find_platform(raw, record.toolchain.glibc, folder, environ)
    return finish_wheel(raw, record, folder, platform)


def _triton_payload(
    executor: Executor, handed: SetupExtras, recipe: Recipe, source: Source, part: ProgressPart, cache: Path
) -> Path:
    """The Triton wheel of a flash-attn release, built once for all its labels."""
    content = "\n".join([source.identity, *build_requirements(), json.dumps(recipe.setup_variables, sort_keys=True)])
    kept = cache / "raw" / content_key(content)
    for path in kept.glob("*.whl"):
        return path
    place = executor.prepare_host(recipe.cell, part)
    with scratch_dir(cache) as scratch:
        raw = run_setup(SetupRun(recipe, source, place, scratch), log_path(cache, recipe.cell.id), handed, part)
        with atomic_path(kept / raw.path.name) as written:
            shutil.copyfile(raw.path, written)
    return kept / raw.path.name
