"""Build, prove and verify the wheels of one batch, each step in a job of its own.

A cell that fails does not stop the others. Rerunning a job skips finished wheels. After a deadline no cell is begun: a
job that GitHub ends at its limit has no outputs, so all that it made would be lost.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from wheelfactory.build.executor import Executor
from wheelfactory.build.products import build_wheel, pin_product
from wheelfactory.core.cell import PRODUCTS, Backend, Cell
from wheelfactory.core.errors import InputError, RunAgainError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import ProgressCallback, Steps, logger
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline.batches import environment_of
from wheelfactory.pipeline.build import build_cell, check_rebuild
from wheelfactory.pipeline.run import Failure, run_in_order
from wheelfactory.release.additions import as_addition, with_other_torches
from wheelfactory.release.manifest import manifest_bytes, read_manifest
from wheelfactory.verify.gates import proves, verify
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.build_record import read_build_record
from wheelfactory.wheel.read import Wheel


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
