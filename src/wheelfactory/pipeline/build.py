"""Build a cell's finished wheel: unpack the sources, run build_rocm.sh, write METADATA and label, run auditwheel.

A wheel can be built again, to compare all bytes. The gates compare device code and Python files with their sources;
host code has no source to be compared with but a build on another machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from wheelfactory.build.environments import build_requirements, cached_wheel, content_folder
from wheelfactory.build.executor import Executor
from wheelfactory.build.setup_py import Recipe, SetupExtras, SetupRun, log_path, make_recipe, run_setup
from wheelfactory.build.sources import Source, fetch_source
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import file_sha256, scratch_dir
from wheelfactory.core.progress import ProgressCallback
from wheelfactory.core.wrap import shorten_names
from wheelfactory.kernels.kernel_set import sets_of_cell
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope, run_compile
from wheelfactory.matrix.facts import Context
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.build_record import BuildRecord, Toolchain
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.repair import find_platform
from wheelfactory.wheel.rewrite import finish_wheel, require_matching_wheel

_REBUILD_GATE = "rebuild"


def build_cell(
    executor: Executor,
    cell: Cell,
    folder: Path,
    report_progress: ProgressCallback,
    *,
    context: Context,
    local_build: bool = False,
    scope: CompileScope = FULL_SCOPE,
) -> Path:
    """Build one cell into `folder` and return the path of the finished wheel.

    `scope` restricts which kernels are compiled, and sets the deadline. Raises `InputError` or `BuildError` before any
    download if this machine cannot build the cell, `SourceError` if the sources cannot be fetched, `BuildError` with
    the path of the log if the build fails, `RunAgainError` if the time limit is reached.
    """
    matrix, environ, cache = context.matrix, context.environ, context.cache
    recipe = make_recipe(matrix, cell, executor.describe_host(cell), environ, local_build=local_build)
    build = matrix.build_tag(cell, context.replacements.get(cell.id, 0))
    source = fetch_source(cell.flash_attn, matrix.flash_attn[cell.flash_attn], cache / "sources", environ)
    if cell.backend is Backend.TRITON:
        payload = _raw_triton_wheel(
            executor, SetupExtras(deadline=scope.deadline), recipe, source, report_progress, cache
        )
        return finish_raw_wheel(payload, _record(recipe, build, source, Toolchain()), folder, environ)
    host = executor.prepare_host(cell, report_progress)
    with scratch_dir(cache) as scratch:
        setup, log = SetupRun(recipe, source, host, scratch), log_path(cache, cell.id)
        set_ids = sets_of_cell(matrix, cell, recipe.archs)
        raw, result = run_compile(setup, set_ids, scope, log, report_progress, context)
        assert raw  # nothing in `scope` stops a build before the link
        record = _record(recipe, build, source, raw.toolchain, result.key if result else None)
        return finish_raw_wheel(raw.path, record, folder, environ)


def _record(
    recipe: Recipe, build: str | None, source: Source, toolchain: Toolchain, kernels: str | None = None
) -> BuildRecord:
    return BuildRecord(
        cell=recipe.cell.id,
        label=str(recipe.label),
        offload_archs=recipe.archs,
        source=source.identity,
        kernels=kernels,
        toolchain=toolchain,
        build=build,
    )


def finish_raw_wheel(raw: Path, record: BuildRecord, folder: Path, environ: Mapping[str, str]) -> Path:
    """Finish a raw wheel: write its METADATA, label, build record and platform tag, and save it in `folder`.

    Raises `InputError` if `raw` is not a wheel, or if its release or label differs from the record, `VerificationError`
    if its compiled code needs libraries that torch, ROCm and the system do not provide.
    """
    # check first: auditwheel's error would not say that this is the wrong wheel
    require_matching_wheel(Wheel.open(raw), record)
    platform = find_platform(raw, record.toolchain.glibc, folder, environ)
    return finish_wheel(raw, record, folder, platform)


def _raw_triton_wheel(
    executor: Executor,
    extras: SetupExtras,
    recipe: Recipe,
    source: Source,
    report_progress: ProgressCallback,
    cache: Path,
) -> Path:
    """Return the raw Triton wheel of a flash-attn release, built once for all its labels."""

    def make(scratch: Path) -> Path:
        host = executor.prepare_host(recipe.cell, report_progress)
        setup = SetupRun(recipe, source, host, scratch)
        return run_setup(setup, log_path(cache, recipe.cell.id), extras, report_progress).path

    variables = json.dumps(recipe.setup_variables, sort_keys=True)
    return cached_wheel(content_folder(cache / "raw", (source.identity, *build_requirements(), variables)), cache, make)


def check_rebuild(
    path: Path,
    cell: Cell,
    executor: Executor,
    report_progress: ProgressCallback,
    *,
    context: Context,
    scope: CompileScope,
) -> GateResult:
    """Build the cell of a wheel again, with the kernels of `scope`, and compare. Raises the errors of `build_cell`.

    The bindings are compiled anew, and everything is linked again.
    """
    with scratch_dir(context.cache) as folder:
        built = build_cell(executor, cell, folder, report_progress, context=context, scope=scope)
        if (built.name, file_sha256(built)) == (path.name, file_sha256(path)):
            return GateResult.from_findings(_REBUILD_GATE, [], "all bytes are equal")
        changed = sorted({name for name, _ in _members(path) ^ _members(built)})
    names = changed if built.name == path.name else [f"its name: {built.name}"]
    finding = Finding(
        file=path.name,
        expected="the bytes of a build on this machine, of the same sources and kernels",
        found=f"it differs in {shorten_names(names)}" if names else "the same files in another archive",
        remedy="do not install it before it is clear which of the two machines changed what",
    )
    return GateResult.from_findings(_REBUILD_GATE, [finding])


def _members(path: Path) -> set[tuple[str, str]]:
    """The name and sha256 of each member. Raises `InputError` for a damaged wheel."""
    wheel = Wheel.open(path)
    return {(name, hashlib.sha256(wheel.read(name)).hexdigest()) for name in wheel.sizes}
