"""Kernel set -> compiled objects, all or one shard, as an archive."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.executor import Executor
from wheelfactory.build.recipe import make_recipe
from wheelfactory.build.setup_py import SetupExtras, SetupRun, log_path, run_setup
from wheelfactory.build.sources import fetch_source
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import ProgressPart
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.archive_manifest import shard_suffix
from wheelfactory.kernels.compiler.flags import APPEND_VARIABLE
from wheelfactory.kernels.compiler.request import SHARD_DONE, CompileResult
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.kernels.resume import (
    find_complete_archive,
    log_ignored_archives,
    remove_partial_archive,
    unpack_partial_archives,
)
from wheelfactory.kernels.setup_env import CompileScope, read_interrupted_result, read_outcome, setup_env, store_folder
from wheelfactory.kernels.source_list import list_planned_sources
from wheelfactory.matrix.facts import Matrix

WHOLE_SET = Shard(1, 1)
"""All of a set, as one shard."""


def compile_kernels(
    executor: Executor,
    kernel_set: KernelSet,
    wanted: CompileScope,
    folder: Path,
    part: ProgressPart,
    *,
    matrix: Matrix,
    environ: Mapping[str, str],
    cache: Path,
) -> Path:
    """Compile a shard of a kernel set and pack its objects into `folder`; gives the archive.

    If that is there already, nothing runs. Else setup.py runs as for a cell of the set, up to the link. What the store
    or a partial archive in `folder` has is not compiled again, so what was interrupted goes on where it was. Raises
    `BuildError` if it cannot be compiled here or a compile fails, `RunAgainError` if the time is up; what there is then
    is packed as a partial archive.
    """
    shard, kernels = wanted.shard or WHOLE_SET, store_folder(cache)
    shard_name = None if shard == WHOLE_SET else str(shard)
    archive = find_complete_archive(folder, kernel_set.id, shard_name, kernels)
    if archive is None:
        taken = unpack_partial_archives(folder, kernel_set.id, shard_name, kernels)
        cell = executor.choose_cheapest(kernel_set.cells)  # any of them gives the same kernels
        recipe = make_recipe(matrix, cell, executor.describe_host(cell), environ, local_build=False)
        release = matrix.flash_attn[cell.flash_attn]
        source = fetch_source(cell.flash_attn, release, cache / "sources", environ)
        place = executor.prepare_host(cell, part)
        with scratch_dir(cache) as scratch:
            setup = SetupRun(recipe, source, place, scratch)
            handed = setup_env(
                setup,
                kernel_set.id,
                replace(wanted, shard=shard),
                cache=cache,
                appended=environ.get(APPEND_VARIABLE),
                planned=list_planned_sources(cell.flash_attn, release, cache, environ),
            )
            log = log_path(cache, kernel_set.id + (shard_suffix(shard_name) if shard_name else ""))
            report, late = _compile(setup, handed, kernels, log, part)
        store = Store.open(kernels, report.key)
        log_ignored_archives(taken, store.key)
        archive = _packed(store, kernel_set.id, folder, shard_name, report.sources, late)
    remove_partial_archive(archive)
    return archive


def _compile(
    setup: SetupRun, handed: SetupExtras, kernels: Path, log: Path, part: ProgressPart
) -> tuple[CompileResult, RunAgainError | None]:
    """Run setup.py up to the link, which our ninja refuses: the compile's report, and the error if the time was up.

    Raises as `compile_kernels`, but not if time was up while it compiled.
    """
    try:
        try:
            run_setup(setup, log, handed, part)
        except BuildError:
            report = read_outcome(setup, kernels, log)
            if report is None or report.state != SHARD_DONE:
                raise
            return report, None
    except RunAgainError as error:
        report = read_interrupted_result(setup)
        if report is None:
            raise
        return report, error
    raise BuildError("no kernels were compiled", log.stem, "its setup.py does not generate any")


def _packed(
    store: Store, set_id: str, folder: Path, shard: str | None, names: Collection[str], late: RunAgainError | None
) -> Path:
    """The archive of what a compile left. Raises `RunAgainError` that names it, if it is a partial one."""
    done = store.read_records().keys() & set(names)
    if late is None or len(done) == len(names):
        return pack_archive(store, set_id, folder, shard, names)
    if not done:
        raise late
    path = pack_archive(store, set_id, folder, shard, names, partial=True)
    raise RunAgainError(
        late.what,
        f"{len(done)} of {len(names)} kernels are compiled, and packed as {path}",
        "run the same command again, here or on another machine that has this file in its --dest",
    )
