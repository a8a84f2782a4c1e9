"""Compile a kernel set, or one shard of it, into an archive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.executor import Executor
from wheelfactory.build.recipe import Recipe, make_recipe
from wheelfactory.build.setup_py import SetupExtras, SetupRun, log_path, run_setup
from wheelfactory.build.sources import Source, fetch_source
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError, RunAgainError, SourceError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.archive_manifest import shard_suffix
from wheelfactory.kernels.compiler.flags import APPEND_VARIABLE
from wheelfactory.kernels.compiler.request import SHARD_DONE, CompileResult
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.kernels.remote.samples import verify_samples
from wheelfactory.kernels.remote.survey_and_fill import fill_from_cluster
from wheelfactory.kernels.resume import log_ignored_archives, unpack_archives
from wheelfactory.kernels.setup_env import CompileScope, read_interrupted_result, read_outcome, setup_env, store_folder
from wheelfactory.kernels.source_list import list_planned_sources
from wheelfactory.matrix.facts import Context


def compile_kernels(
    executor: Executor,
    kernel_set: KernelSet,
    scope: CompileScope,
    folder: Path,
    report_progress: ProgressCallback,
    *,
    context: Context,
) -> Path:
    """Compile a shard of a kernel set, pack its objects into `folder`, and return the archive.

    Does nothing if the archive exists. Otherwise runs setup.py as the build of a cell does, but stops before the link.
    Objects in the store or in any archive of the set in `folder` are not compiled again, so an interrupted compile
    resumes.
    Raises `BuildError` if it cannot be compiled here or a compile fails. Raises `RunAgainError` if it runs out of time,
    after packing the finished objects.
    """
    matrix, environ, cache = context.matrix, context.environ, context.cache
    kernels = store_folder(cache)
    # a whole set is also its only shard
    shard_name = None if scope.shard in (None, Shard(1, 1)) else str(scope.shard)
    unpacked = unpack_archives(folder, kernel_set.id, kernels)
    complete = [item for item in unpacked if item.shard == shard_name and not item.is_partial]
    if len(complete) == 1:
        return folder / complete[0].file_name
    if complete:  # only a run of setup.py computes the right key
        logger.info("%d archives of different keys in %s: asking the compiler which one fits", len(complete), folder)
    recipe, source = _choose_recipe(executor, kernel_set.cells, context=context)
    cell, release = recipe.cell, matrix.flash_attn[recipe.cell.flash_attn]
    build_host = executor.prepare_host(cell, report_progress)
    with scratch_dir(cache) as scratch:
        setup = SetupRun(recipe, source, build_host, scratch)
        scope, set_ids = replace(scope, targets=kernel_set.targets), (kernel_set.id,)
        appended = environ.get(APPEND_VARIABLE)
        planned = list_planned_sources(cell.flash_attn, release, cache, environ, recipe.archs)
        log = log_path(cache, kernel_set.id + (shard_suffix(shard_name) if shard_name else ""))
        filled = fill_from_cluster(
            setup, set_ids, scope, log, report_progress, cache=cache, appended=appended, planned=planned
        )
        extras = setup_env(setup, set_ids, scope, cache=cache, appended=appended, planned=planned)
        result, time_error = _compile(setup, extras, kernels, log, report_progress)
        verify_samples(filled)
    store = Store.open(kernels, result.keys[0])
    log_ignored_archives(unpacked, store.key)
    return _pack_result(store, kernel_set.id, folder, shard_name, result.sources, time_error)


def _choose_recipe(executor: Executor, cells: Sequence[Cell], *, context: Context) -> tuple[Recipe, Source]:
    """Choose the cheapest of `cells`, which all give the same kernels, among the releases that can be fetched.

    Raises `BuildError` if it cannot be compiled here, `SourceError` if no release can be fetched.
    """
    cell = executor.choose_cheapest(cells)
    recipe = make_recipe(context.matrix, cell, executor.describe_host(cell), context.environ, local_build=False)
    try:
        release = context.matrix.flash_attn[cell.flash_attn]
        return recipe, fetch_source(cell.flash_attn, release, context.cache / "sources", context.environ)
    except SourceError as error:
        others = [other for other in cells if other.flash_attn != cell.flash_attn]
        if not others:
            raise
        logger.warning("%s; compiling the same kernels from flash-attn %s", error, others[0].flash_attn)
    return _choose_recipe(executor, others, context=context)


def _compile(
    setup: SetupRun, extras: SetupExtras, kernels: Path, log: Path, report_progress: ProgressCallback
) -> tuple[CompileResult, RunAgainError | None]:
    """Run setup.py up to the link, where our ninja fails on purpose.

    Returns the result, with the `RunAgainError` if it ran out of time while compiling. Raises the errors of
    `compile_kernels`.
    """
    try:
        try:
            run_setup(setup, log, extras, report_progress)
        except BuildError:
            result = read_outcome(setup, kernels, log)
            if result is None or result.state != SHARD_DONE:
                raise
            return result, None
    except RunAgainError as error:
        result = read_interrupted_result(setup)
        if result is None:
            raise
        return result, error
    raise BuildError(
        "setup.py compiled no kernels", log.stem, "this flash-attn release generates none for these settings"
    )


def _pack_result(
    store: Store, set_id: str, folder: Path, shard: str | None, names: Collection[str], time_error: RunAgainError | None
) -> Path:
    """Pack the objects of a compile. Raises `RunAgainError`, which names the archive, if it is partial."""
    done = store.read_records().keys() & set(names)
    if time_error is None or len(done) == len(names):
        return pack_archive(store, set_id, folder, shard, names)
    if not done:
        raise time_error
    path = pack_archive(store, set_id, folder, shard, names, partial=True)
    raise RunAgainError(
        time_error.what,
        f"{len(done)} of {len(names)} kernels are compiled and packed: {path}",
        "run the same command again, here or on another machine with this file in its --dest",
    )
