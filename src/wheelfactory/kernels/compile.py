"""Compile a kernel set, or one shard of it, into an archive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.executor import Executor
from wheelfactory.build.setup_py import Recipe, SetupRun, log_path, make_recipe
from wheelfactory.build.sources import Source, fetch_source
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError, RunAgainError, SourceError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.archive_format import shard_suffix
from wheelfactory.kernels.compiler.costs import Shard
from wheelfactory.kernels.compiler.request import CompileResult
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.kernels.resume import log_ignored_archives, unpack_archives
from wheelfactory.kernels.setup_env import CompileScope, read_interrupted_result, run_compile, store_folder
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
    cache = context.cache
    kernels = store_folder(cache)
    # a whole set is also its only shard
    shard_name = None if scope.shard in (None, Shard(1, 1)) else str(scope.shard)
    unpacked = unpack_archives(folder, kernel_set.id, kernels)
    complete = [item for item in unpacked if item.shard == shard_name and not item.is_partial]
    if len(complete) == 1:
        return folder / complete[0].file_name
    if complete:  # only a run of setup.py computes the right key
        logger.info("%d archives of different keys in %s: asking the compiler which one fits", len(complete), folder)
    recipe, source = choose_recipe(executor, kernel_set.cells, context=context)
    build_host = executor.prepare_host(recipe.cell, report_progress)
    with scratch_dir(cache) as scratch:
        setup = SetupRun(recipe, source, build_host, scratch)
        scope = replace(scope, targets=kernel_set.targets)
        log = log_path(cache, kernel_set.id + (shard_suffix(shard_name) if shard_name else ""))
        result, time_error = _compile(setup, kernel_set.id, scope, log, report_progress, context)
    store = Store.open(kernels, result.keys[0])
    log_ignored_archives(unpacked, store.key)
    return _pack_result(store, kernel_set.id, folder, shard_name, result.sources, time_error)


def choose_recipe(executor: Executor, cells: Sequence[Cell], *, context: Context) -> tuple[Recipe, Source]:
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
    return choose_recipe(executor, others, context=context)


def _compile(
    setup: SetupRun, set_id: str, scope: CompileScope, log: Path, report_progress: ProgressCallback, context: Context
) -> tuple[CompileResult, RunAgainError | None]:
    """Run setup.py up to the link, where our ninja fails on purpose.

    Returns the result, with the `RunAgainError` if it ran out of time while compiling. Raises the errors of
    `compile_kernels`.
    """
    try:
        raw, result = run_compile(setup, (set_id,), scope, log, report_progress, context)
    except RunAgainError as error:
        result = read_interrupted_result(setup)
        if result is None:
            raise
        return result, error
    if raw or result is None:
        hint = "this flash-attn release generates none for these settings"
        raise BuildError("setup.py compiled no kernels", log.stem, hint)
    return result, None


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
    hint = "run the same command again, here or on another machine with this file in its --dest"
    raise RunAgainError(time_error.what, f"{len(done)} of {len(names)} kernels are compiled and packed: {path}", hint)
