"""Build a cell's finished wheel, or build, prove and verify the wheels of a batch, each step in a job of its own.

A wheel can be built again, to compare all bytes. The gates compare device code and Python files with their sources;
host code has no source to be compared with but a build on another machine.

A cell of a batch that fails does not stop the others. Rerunning a job skips finished wheels. After a deadline no cell
is begun: a job that GitHub ends at its limit has no outputs, so all that it made would be lost.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wheelfactory.build.environments import build_requirements, cached_wheel, content_folder
from wheelfactory.build.executor import Executor
from wheelfactory.build.products import build_wheel, pin_product
from wheelfactory.build.setup_py import Recipe, SetupExtras, SetupRun, log_path, make_recipe, run_setup
from wheelfactory.build.sources import Source, fetch_source
from wheelfactory.core.cell import PRODUCTS, Backend, Cell
from wheelfactory.core.errors import FactoryError, InputError, PublishError, RunAgainError
from wheelfactory.core.files import file_sha256, scratch_dir, write_atomic
from wheelfactory.core.progress import ProgressCallback, Steps, logger
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.core.wrap import shorten_names
from wheelfactory.kernels.kernel_set import sets_of_cell
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope, run_compile
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline.batches import environment_of
from wheelfactory.release.additions import as_addition, with_other_torches
from wheelfactory.release.manifest import manifest_bytes, read_manifest
from wheelfactory.verify.gates import proves, verify
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.read import BuildRecord, Toolchain, Wheel, read_build_record
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
    toolchain, kernels = Toolchain(), None

    def setup_in(scratch: Path) -> SetupRun:
        host = executor.prepare_host(cell, report_progress)
        return SetupRun(recipe, source, host, scratch, log_path(cache, cell.id), report_progress)

    with scratch_dir(cache) as scratch:
        if cell.backend is Backend.TRITON:
            payload = _raw_triton_wheel(setup_in, recipe, source, SetupExtras(deadline=scope.deadline), cache)
        else:
            raw, result = run_compile(setup_in(scratch), sets_of_cell(matrix, cell, recipe.archs), scope, context)
            assert raw  # nothing in `scope` stops a build before the link
            payload, toolchain, kernels = raw.path, raw.toolchain, result.key if result else None
        record = BuildRecord(
            cell=cell.id,
            label=str(recipe.label),
            offload_archs=recipe.archs,
            source=source.identity,
            kernels=kernels,
            toolchain=toolchain,
            build=build,
        )
        return finish_raw_wheel(payload, record, folder, environ)


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
    setup_in: Callable[[Path], SetupRun], recipe: Recipe, source: Source, extras: SetupExtras, cache: Path
) -> Path:
    """Return the raw Triton wheel of a flash-attn release, built once for all its labels."""
    inputs = (source.identity, *build_requirements(), json.dumps(recipe.setup_variables, sort_keys=True))
    folder = content_folder(cache / "raw", inputs)
    return cached_wheel(folder, cache, lambda scratch: run_setup(setup_in(scratch), extras).path)


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


@dataclass(frozen=True)
class Failure:
    """A wheel that was not published, and why: it cannot be built on this machine, or its build or a gate failed."""

    name: str
    """A cell id, or the name of a product."""
    error: FactoryError


def run_in_order(work: Iterable[tuple[str, Callable[[], object]]]) -> Iterator[Failure]:
    """Call the function of each cell id in turn and yield failures, up to the first that ran out of time."""
    for name, function in work:
        try:
            function()
        except PublishError:
            raise
        except FactoryError as error:
            yield Failure(name, error)
            if isinstance(error, RunAgainError):
                return


def find_wheels(folder: Path) -> dict[str, Path]:
    """The wheels of a folder by the cell in their build record, or by the name of a product.

    A file that is not a finished wheel of this factory is left out, with a line in the log.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.whl")):
        try:
            wheel = Wheel.open(path)
            record = read_build_record(wheel)
        except InputError as error:
            logger.warning("ignoring %s: %s", path.name, error)
            continue
        if wheel.product in PRODUCTS:
            found[wheel.product] = path
        elif record:
            found[record.cell] = path
    return found


def build_batch(
    executor: Executor, names: Sequence[str], dest: Path, scope: CompileScope, *, context: Context
) -> tuple[Failure, ...]:
    """Build the wheels of these cells or products that `dest` does not have; return what failed.

    What the deadline of `scope` leaves is one failure, a `RunAgainError`.
    """

    def build(name: str, report_progress: ProgressCallback) -> None:
        if name in PRODUCTS:
            build_wheel(pin_product(name, context), dest, context.cache)
        else:
            build_cell(executor, Cell.parse(name), dest, report_progress, context=context, scope=scope)

    built = find_wheels(dest)
    return _for_each(executor, [name for name in names if name not in built], build, scope.deadline)


def prove_batch(
    executor: Executor, names: Sequence[str], wheels: Path, deadline: float | None = None, *, context: Context
) -> tuple[Failure, ...]:
    """Run the slow gates of the wheels of these cells, whose proofs stay in the cache; return what they refuse.

    Wheels that differ only in their label share a proof.
    """
    found = find_wheels(wheels)

    def prove(name: str, _report_progress: ProgressCallback) -> None:
        results = verify(found[name], Cell.parse(name), runner=executor, selected=proves, context=context)
        as_addition(found[name], results, "the job that verifies the wheel runs these gates again")

    # no product has slow gates
    return _for_each(executor, [name for name in names if name in found and name not in PRODUCTS], prove, deadline)


def verify_batch(
    executor: Executor,
    names: Sequence[str],
    wheels: Path,
    rows: Path,
    scope: CompileScope = FULL_SCOPE,
    *,
    rebuild_all: bool = False,
    context: Context,
) -> tuple[Failure, ...]:
    """Verify the wheels of these cells or products and write a manifest of one row for each.

    Runs the required gates; returns what a gate refuses. The manifest of a cell is ``<rows>/<cell id>/manifest.jsonl``.
    With the archives of `scope`, CK wheels must be linked from these, and one of them, drawn here, or all are built
    again and compared.
    """
    found = find_wheels(wheels)

    def verify_one(name: str, report_progress: ProgressCallback) -> None:
        cell = None if name in PRODUCTS else Cell.parse(name)
        again: tuple[GateResult, ...] = ()
        if cell and name in rebuilt:
            # first, as code of the wheel runs in a later gate
            again = (check_rebuild(found[name], cell, executor, report_progress, context=context, scope=scope),)
            as_addition(found[name], again)
        results = verify(found[name], cell, runner=executor, archives=scope.archives, context=context)
        row, _ = as_addition(found[name], (*results, *again))
        write_atomic(rows / name / MANIFEST_NAME, manifest_bytes([row]))

    # all of them: rows of an earlier attempt would be an artifact, which any job of the run can replace
    unverified = [name for name in names if name in found]
    cells = {name: Cell.parse(name) for name in unverified if name not in PRODUCTS}
    compiled = [name for name, cell in cells.items() if scope.archives and cell.backend is Backend.CK]
    # drawn where no build ran, so that a machine that changes wheels cannot know which of them are compared
    rebuilt = compiled if rebuild_all or not compiled else [secrets.choice(compiled)]
    failures = _for_each(executor, unverified, verify_one, scope.deadline)
    # once all environments were there: each has a torch that the wheels of the others may load on
    for path in filter(Path.exists, (rows / name / MANIFEST_NAME for name in cells)):
        write_atomic(path, manifest_bytes(with_other_torches(row, context.cache) for row in read_manifest(path)))
    return failures


def _for_each(
    executor: Executor, names: Sequence[str], work: Callable[[str, ProgressCallback], None], deadline: float | None
) -> tuple[Failure, ...]:
    """Do the work of each name in turn. An environment is removed before the next one, as no disk holds all of them."""
    cells = [None if name in PRODUCTS else Cell.parse(name) for name in names]
    environments = [cell and environment_of(cell) for cell in cells]

    def run_step(number: int) -> None:
        if deadline is not None and time.time() >= deadline:
            which = f"{names[number]} and {len(names) - number - 1} after it"
            raise RunAgainError("time limit reached", which, "run the job again: it continues where this one stopped")
        cell, following = cells[number], environments[number + 1 : number + 2]
        try:
            with steps.step(names[number]) as report_progress:
                work(names[number], report_progress)
        finally:
            if cell and cell.backend is Backend.CK and environments[number] not in following:
                executor.discard_host(cell)

    with Steps(len(names)) as steps:
        return tuple(run_in_order((name, partial(run_step, number)) for number, name in enumerate(names)))
