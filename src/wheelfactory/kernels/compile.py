"""Compile a kernel set, or one shard of it, into an archive; merge the archives of a set into one.

Any archive of the set in the folder is used first, so an interrupted compile resumes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.executor import Executor
from wheelfactory.build.setup_py import Recipe, SetupRun, log_path, make_recipe
from wheelfactory.build.sources import Source, fetch_source
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError, InputError, RunAgainError, SourceError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.kernels.archive import find_archives, pack_archive, require_complete, unpack_archive
from wheelfactory.kernels.archive_format import ArchiveManifest, shard_suffix
from wheelfactory.kernels.compiler.costs import Shard
from wheelfactory.kernels.compiler.key import diff_key_parts
from wheelfactory.kernels.compiler.request import CompileResult
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.kernel_set import KernelSet, proof_path, read_proof
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
        log = log_path(cache, kernel_set.id + (shard_suffix(shard_name) if shard_name else ""))
        setup = SetupRun(recipe, source, build_host, scratch, log, report_progress)
        result, time_error = _compile(setup, kernel_set, scope, context)
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
    setup: SetupRun, kernel_set: KernelSet, scope: CompileScope, context: Context
) -> tuple[CompileResult, RunAgainError | None]:
    """Run setup.py up to the link, where our ninja fails on purpose.

    Returns the result, with the `RunAgainError` if it ran out of time while compiling. Raises the errors of
    `compile_kernels`.
    """
    try:
        raw, result = run_compile(setup, (kernel_set.id,), replace(scope, targets=kernel_set.targets), context)
    except RunAgainError as error:
        result = read_interrupted_result(setup)
        if result is None:
            raise
        return result, error
    if raw or result is None:
        hint = "this flash-attn release generates none for these settings"
        raise BuildError("setup.py compiled no kernels", setup.log.stem, hint)
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


def unpack_archives(folder: Path, set_id: str, kernels: Path) -> tuple[ArchiveManifest, ...]:
    """Unpack the archives of a set in a folder into the stores of their keys below `kernels`; return their manifests.

    Logs a warning for a damaged or misnamed archive. A manifest leaves out damaged objects; that of a truncated or
    misnamed archive is not returned, but its good objects are in the store. Raises `FactoryError` if the objects cannot
    be written.
    """
    unpacked = []
    for path in find_archives(folder, set_id):
        try:
            done = unpack_archive(path, kernels)
            if path.name != done.file_name:
                which = f"{path} should be {done.file_name}"
                raise InputError("misnamed kernel archive", which, "remove it")
        except InputError as error:
            logger.warning("%s; its good objects are used", error)
            continue
        logger.info("%d of %d kernels are in %s", len(done.objects), len(done.expected), path.name)
        unpacked.append(done)
    return tuple(unpacked)


def log_ignored_archives(unpacked: Iterable[ArchiveManifest], key: SetKey) -> None:
    """Log a warning for each unpacked archive with a different key, with the differences."""
    for manifest in unpacked:
        if manifest.key != key.digest:
            why = "; ".join(diff_key_parts(key.parts, manifest.set_key.parts))
            logger.warning("ignored %s, its key differs: %s", manifest.file_name, why)


def merge_set(folder: Path, set_id: str, kernels: Path) -> Path:
    """Merge the archives of a set in a folder into one, through the stores below `kernels`, and return its path.

    A proof of the set in the folder becomes part of the archive. An undamaged archive of the whole set is returned as
    it is, unless there is a new proof. Raises `InputError` if the folder has no archive of the set, those of several
    compilers, or a damaged proof; if objects are missing, `RunAgainError` if a shard has begun, otherwise
    `IncompleteSetError`.
    """
    unpacked = unpack_archives(folder, set_id, kernels)
    if not unpacked:
        hint = f"compile them: wheelfactory kernels {set_id} --shard 1/N --dest {folder}"
        raise InputError("no archives to merge", f"{set_id} in {folder}", hint)
    stores = {manifest.key: Store(kernels, manifest.set_key) for manifest in unpacked}
    complete = [store for store in stores.values() if store.read_records().keys() >= {*store.key.sources}]
    begun, progress = any(manifest.is_partial for manifest in unpacked), _best_of_each_shard(unpacked)
    if len(stores) > 1 and len(complete) != 1 and (complete or not begun):
        first, other = (next(item for item in unpacked if item.key == key) for key in list(stores)[:2])
        why = "; ".join(diff_key_parts(first.set_key.parts, other.set_key.parts))
        hint = "keep only the archives of one compiler and one set of flags in the folder"
        which = f"{first.file_name} and {other.file_name} differ in {why}"
        raise InputError("archives of different compilers", which, hint)
    if begun and not complete:
        hint = f"run the compile commands of these shards again with --dest {folder}, then merge again"
        raise RunAgainError("incomplete kernel set", "; ".join(_describe_progress(progress)), hint)
    (store,) = complete or stores.values()
    absent = ", ".join(shard for shard in _every_shard(progress) if shard not in progress)
    require_complete(store.key.sources, store.read_records(), f"; no archive of shard {absent}" if absent else "")
    log_ignored_archives(unpacked, store.key)
    whole = [item for item in unpacked if (item.key, item.shard, item.is_partial) == (store.key.digest, None, False)]
    beside = proof_path(folder, set_id, store.key.digest)
    proof = read_proof(beside) if beside.is_file() else None
    if whole and (proof is None or proof == whole[0].proof):
        return folder / whole[0].file_name
    return pack_archive(store, set_id, folder, None, proof=proof)


def _best_of_each_shard(unpacked: Sequence[ArchiveManifest]) -> dict[str, ArchiveManifest]:
    """Return for each shard the archive with most objects; a whole set counts as shard ``1/1``."""
    return {item.shard or "1/1": item for item in sorted(unpacked, key=lambda item: len(item.objects))}


def _describe_progress(progress: Mapping[str, ArchiveManifest]) -> Iterator[str]:
    """Describe each incomplete shard."""
    for shard in _every_shard(progress):
        if shard not in progress:
            yield f"shard {shard}: no kernel"
        elif progress[shard].is_partial:
            yield f"shard {shard}: {len(progress[shard].objects)} of {len(progress[shard].expected)} kernels"


def _every_shard(known: Iterable[str]) -> Iterator[str]:
    """Yield all shards of a set that was split like these shards."""
    for count in sorted({Shard.parse(shard).count for shard in known}):
        yield from Shard.names(count)
