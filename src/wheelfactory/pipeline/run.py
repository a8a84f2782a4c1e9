"""Build, verify and publish selected cells into a release directory on this machine, then write its index."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from wheelfactory.build.executor import Executor
from wheelfactory.build.products import PinnedProject, build_wheel
from wheelfactory.build.setup_py import make_recipe
from wheelfactory.core.cell import OFFERED_PRODUCTS, Backend, Cell
from wheelfactory.core.errors import DONE, RUN_AGAIN, BuildError, FactoryError, PublishError, RunAgainError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.process import kill_running
from wheelfactory.core.progress import ProgressCallback, Steps, ignore_progress
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope
from wheelfactory.matrix.expand import unpublished_cells
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.pipeline.batches import split_into_waves
from wheelfactory.pipeline.build import Failure, build_cell, run_in_order
from wheelfactory.release.additions import (
    as_addition,
    fetch_missing_dependencies,
    find_missing_products,
    require_products,
)
from wheelfactory.release.directory import DirectoryPublisher, write_pages
from wheelfactory.release.manifest import WheelRow, available_cells, next_replacements, outdated_reason
from wheelfactory.release.transaction import Publisher, held_rows, publish
from wheelfactory.release.verified import unchecked_since, unverified_reason
from wheelfactory.site.site import Site
from wheelfactory.verify.gates import verify
from wheelfactory.verify.result import GateResult


@dataclass(frozen=True)
class Worklist:
    """What `run` does on this machine for the selected cells."""

    to_build: tuple[Cell, ...]
    published: tuple[Cell, ...]
    unbuildable: tuple[Failure, ...]
    to_verify: tuple[WheelRow, ...] = ()
    """Rows of published wheels that are unverified."""


def make_worklist(
    executor: Executor, cells: Sequence[Cell], publisher: Publisher, *, quick: bool = False, context: Context
) -> Worklist:
    """Split the cells into those to build, to verify, already published, and impossible to build on this machine.

    A cell whose wheels are all yanked or lost gets a replacement. Unverified wheels are verified unless they are
    yanked. Raises `PublishError` if a published file was changed.
    """
    present = held_rows(publisher)
    missing = unpublished_cells(cells, available_cells(present, context.matrix))
    to_build, unbuildable = [], []
    for cell in missing:
        try:
            make_recipe(context.matrix, cell, executor.describe_host(cell), context.environ, local_build=False)
            to_build.append(cell)
        except BuildError as error:
            unbuildable.append(Failure(cell.id, error))
    ids = {cell.id for cell in cells}
    to_verify = () if quick else tuple(row for row in present if row.cell in ids and _needs_gates(row, context.matrix))
    unverified = {row.cell for row in to_verify}
    published = tuple(cell for cell in cells if cell not in missing and cell.id not in unverified)
    return Worklist(tuple(to_build), published, tuple(unbuildable), to_verify)


def _needs_gates(row: WheelRow, matrix: Matrix) -> bool:
    lacking = unverified_reason(row) or unchecked_since(row)
    return row.yanked is None and bool(lacking) and not outdated_reason(row, matrix)


def run_worklist(
    executor: Executor,
    worklist: Worklist,
    publisher: DirectoryPublisher,
    extended: Collection[str] = (),
    scope: CompileScope = FULL_SCOPE,
    *,
    quick: bool = False,
    context: Context,
) -> tuple[Failure, ...]:
    """Build, verify and publish a worklist wheel by wheel, write the index, and return what failed.

    `extended` names gates to run in addition to the required ones; `quick` skips the slow gates; `scope` restricts
    which kernels are compiled, and sets the deadline. Missing dependencies and products that the cells require are
    added before the cells, the other products after them, unless the deadline has passed. A failure of one wheel does
    not stop the others. Raises `PublishError` if the release is damaged.
    """
    matrix = context.matrix
    context = replace(context, replacements=next_replacements(publisher.rows(), matrix))
    # for the published cells too: an interrupted run may have published its cells only
    products = find_missing_products(publisher, worklist.to_build + worklist.published, context=context)
    offered = [project for project in products if project.name in OFFERED_PRODUCTS]
    wheels = (*worklist.to_verify, *worklist.to_build, *products)
    with Steps(len(wheels) + 1) as steps, scratch_dir(context.cache) as scratch:
        if worklist.to_build:
            # an index of the release replaces PyPI for pip, so it must have the dependencies
            publish(publisher, fetch_missing_dependencies(publisher, context=context))
        pipeline = CellPipeline(context, executor, publisher, scratch, steps, extended, scope, quick)
        unverified = ((str(row.cell), partial(pipeline.verify_published, row)) for row in worklist.to_verify)
        failures = list(run_in_order(unverified))
        # before the wheels that require them
        failures += pipeline.add_products(project for project in products if project not in offered)
        failures += build_in_waves(pipeline, worklist.to_build)
        # after what was asked for. They may fail, for example where no CPU torch exists: no cell depends on them
        if not _ran_out_of_time(failures):
            failures += pipeline.add_products(offered)
        with steps.step("index and search page"):
            write_pages(publisher.folder, Site(matrix, publisher.rows()).render())
    return tuple(failures)


@dataclass(frozen=True)
class CellPipeline:
    """Takes a cell from its sources to its row in the release; safe to share between threads."""

    context: Context
    executor: Executor
    publisher: DirectoryPublisher
    scratch: Path
    steps: Steps
    extended: Collection[str]
    scope: CompileScope
    quick: bool = False
    publish_lock: threading.Lock = field(default_factory=threading.Lock)
    """Lets one cell at a time change the release."""
    triton_lock: threading.Lock = field(default_factory=threading.Lock)
    """Verifies one Triton wheel at a time: each uses every core, and the next label reuses its cached results."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def split(self, count: int) -> CellPipeline:
        """Return this pipeline on one of `count` shares of the machine."""
        return replace(self, executor=self.executor.split(count))

    def build_and_publish(self, cell: Cell) -> None:
        """Build, verify and publish a cell. Raises `FactoryError`."""
        with self.steps.step(cell.id) as report_progress:
            stoppable = self._stop_between_steps(report_progress)
            path = build_cell(self.executor, cell, self.scratch, stoppable, context=self.context, scope=self.scope)
            gates = self._verify(path, cell, self.scope.archives)
            added = as_addition(path, gates, cache=self.context.cache)
            with self.publish_lock:
                require_products(added[:1], self.publisher.rows(), context=self.context)
                publish(self.publisher, [added])

    def verify_published(self, row: WheelRow) -> None:
        """Verify a published wheel and record the gate results in its row. Raises `FactoryError`."""
        cell, path = Cell.parse(str(row.cell)), self.publisher.wheels_dir / row.filename
        yank = f"wheelfactory publish {self.publisher.folder} --yank {row.filename} --reason WHY"
        hint = f"the published wheel was not changed; if a gate rejected it, yank it: `{yank}`"
        with self.steps.step(cell.id):
            publish(self.publisher, [as_addition(path, self._verify(path, cell), hint)])

    def add_products(self, projects: Iterable[PinnedProject]) -> Iterator[Failure]:
        """Build, verify and publish products; yield those that failed. Raises `PublishError`."""

        def add(project: PinnedProject) -> None:
            with self.steps.step(project.name):
                path = build_wheel(project, self.scratch, self.context.cache)
                publish(self.publisher, [as_addition(path, self._verify(path))])

        return run_in_order((project.name, partial(add, project)) for project in projects)

    def _verify(self, path: Path, cell: Cell | None = None, archives: Path | None = None) -> tuple[GateResult, ...]:
        with self.triton_lock if cell and cell.backend is Backend.TRITON else nullcontext():
            return verify(
                path, cell, self.extended, self.executor, quick=self.quick, archives=archives, context=self.context
            )

    def _stop_between_steps(self, report_progress: ProgressCallback) -> ProgressCallback:
        """Wrap a progress callback so that it interrupts this cell after another cell stopped the run."""

        def report(done: int, total: int, text: str = "") -> None:
            if self.stopped.is_set():
                raise FactoryError("interrupted", "another cell stopped the run", "rerun the same command to continue")
            report_progress(done, total, text)

        return report


def build_in_waves(pipeline: CellPipeline, cells: Sequence[Cell]) -> list[Failure]:
    """Build and publish cells in waves, if any run in parallel, until the deadline; return those that failed."""
    waves = split_into_waves(pipeline.context.matrix, cells) if pipeline.executor.parallel_cells > 1 else (cells,)
    failures: list[Failure] = []
    for wave in waves:
        failures += build_in_parallel(pipeline, wave)
        if _ran_out_of_time(failures):
            break  # the deadline has also passed for the later waves
    return failures


def build_in_parallel(pipeline: CellPipeline, cells: Sequence[Cell]) -> list[Failure]:
    """Build and publish cells, as many at once as the executor allows, and return those that failed.

    Raises `PublishError` if the release is damaged: no other wheel may be published into it then.
    """
    executor = pipeline.executor
    count = min(executor.parallel_cells, len(cells))
    if count <= 1:
        return list(run_in_order((cell.id, partial(pipeline.build_and_publish, cell)) for cell in cells))
    # in this thread, where Ctrl-C interrupts it; most Triton cells only get a label and need no image
    compiled = [cell for cell in cells if cell.backend is Backend.CK]
    failures = list(run_in_order((cell.id, partial(executor.prepare_host, cell, ignore_progress)) for cell in compiled))
    failed = {failure.name for failure in failures}
    share = pipeline.split(count)
    with ThreadPoolExecutor(count) as pool:
        futures = {pool.submit(share.build_and_publish, cell): cell for cell in cells if cell.id not in failed}
        try:
            for done in as_completed(futures):
                error = None if done.cancelled() else done.exception()
                if isinstance(error, FactoryError) and not isinstance(error, PublishError):
                    failures.append(Failure(futures[done].id, error))
                elif error:
                    raise error
                if isinstance(error, RunAgainError):
                    _cancel(futures)  # the deadline has also passed for the others
        except BaseException:
            _cancel(futures)
            pipeline.stopped.set()
            # repeated, because a thread between two steps may start another process or container
            while wait(futures, timeout=1).not_done:
                executor.stop()
                kill_running()
            raise
    # in matrix order: report and exit code must not depend on which thread ends first
    order = [cell.id for cell in cells]
    return sorted(failures, key=lambda failure: order.index(failure.name))


def _ran_out_of_time(failures: Iterable[Failure]) -> bool:
    return any(isinstance(failure.error, RunAgainError) for failure in failures)


def exit_code(failures: Sequence[Failure]) -> int:
    """Return RUN_AGAIN if any cell ran out of time, else the exit code of the first failure, else DONE."""
    if _ran_out_of_time(failures):
        return RUN_AGAIN
    return failures[0].error.exit_code if failures else DONE


def _cancel(futures: Iterable[Future[None]]) -> None:
    """Cancel the futures that have not started."""
    # not `shutdown(cancel_futures=True)`: `as_completed` never yields futures that `shutdown` dropped
    for future in futures:
        future.cancel()
