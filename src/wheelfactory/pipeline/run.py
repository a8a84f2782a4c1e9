"""The whole job for the cells selected: build, verify, publish into a directory, write its index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from wheelfactory.build.executor import BuildHost, Executor
from wheelfactory.build.fallback import FallbackProject, build_fallback
from wheelfactory.build.recipe import make_recipe
from wheelfactory.core.cell import FALLBACK_NAME, Backend, Cell
from wheelfactory.core.errors import DONE, RUN_AGAIN, BuildError, FactoryError, PublishError, RunAgainError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.host import Host
from wheelfactory.core.process import kill_running
from wheelfactory.core.progress import ProgressPart, Steps, ignore_progress
from wheelfactory.kernels.kernel_set import group_kernel_sets
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.select import unpublished_cells
from wheelfactory.pipeline.build import build_cell
from wheelfactory.release.additions import as_addition, fetch_missing_dependencies, find_missing_fallback
from wheelfactory.release.directory import DirectoryPublisher, write_pages
from wheelfactory.release.manifest import WheelRow, published_cells
from wheelfactory.release.transaction import Publisher, publish
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.site import render_site
from wheelfactory.verify.gates import verify
from wheelfactory.verify.result import GateResult


@dataclass(frozen=True)
class Failure:
    """What has no wheel, and the error that says why: it cannot be built here, or its build or a gate failed."""

    name: str
    """A cell id, or flash-attention-amd."""
    error: FactoryError


@dataclass(frozen=True)
class Worklist:
    """What is to be done on this machine for a selection of cells."""

    to_build: tuple[Cell, ...]
    published: tuple[Cell, ...]
    unbuildable: tuple[Failure, ...]
    to_verify: tuple[WheelRow, ...] = ()
    """The rows of wheels that are published and not verified."""


def make_worklist(
    executor: Executor,
    cells: Sequence[Cell],
    publisher: Publisher,
    *,
    quick: bool = False,
    matrix: Matrix,
    environ: Mapping[str, str],
) -> Worklist:
    """Split the cells into those to build or to verify, those published already, and those this machine cannot build.

    A cell whose published file is gone is built again, which gives the same file. A published wheel that is not
    verified is verified now, unless it is yanked. Raises `PublishError` if a published file was changed.
    """
    held = [row for row in publisher.rows() if publisher.has_wheel(row)]
    missing = unpublished_cells(cells, published_cells(held))
    todo, refusals = [], []
    for cell in missing:
        try:
            make_recipe(matrix, cell, executor.describe_host(cell), environ, local_build=False)
            todo.append(cell)
        except BuildError as error:
            refusals.append(Failure(cell.id, error))
    ids = {cell.id for cell in cells}
    to_verify = [row for row in held if not quick and row.cell in ids and row.yanked is None and unverified_reason(row)]
    waiting = published_cells(to_verify)
    already = tuple(cell for cell in cells if cell not in missing and cell.id not in waiting)
    return Worklist(tuple(todo), already, tuple(refusals), tuple(to_verify))


def run_worklist(
    executor: Executor,
    job: Worklist,
    publisher: DirectoryPublisher,
    extended: Collection[str] = (),
    scope: CompileScope = FULL_SCOPE,
    *,
    quick: bool = False,
    matrix: Matrix,
    host: Host,
    environ: Mapping[str, str],
    cache: Path,
) -> tuple[Failure, ...]:
    """Build, verify and publish what is to do, wheel by wheel, then write the index of the release.

    `extended` names the gates to run beside the required ones, `quick` leaves the slow ones out; `wanted` says where
    kernels may come from, and how long it may take. As many cells are built at a time as the executor allows.

    A wheel is published as soon as it is verified, so an interrupted run has lost what was under way at most. A cell
    that fails does not stop the others; gives those that did. With the first wheels come the dependencies that the
    release lacks, and flash-attention-amd, which is built and verified for that; no cell needs it, so none is stopped
    where it fails, as on a machine that has no CPU torch for it.
    """
    fallback = find_missing_fallback(publisher) if job.to_build else None
    count = len(job.to_verify) + len(job.to_build) + (fallback is not None) + 1
    with Steps(count) as steps, scratch_dir(cache) as scratch:
        if job.to_build:
            publish(publisher, fetch_missing_dependencies(matrix.dependencies, publisher, cache=cache, environ=environ))
        line = CellPipeline(matrix, host, environ, cache, publisher, scratch, steps, extended, scope, quick)
        failures = list(line.build_and_publish_fallback(fallback)) if fallback else []
        failures += _in_turn((str(row.cell), partial(line.verify_published, executor, row)) for row in job.to_verify)
        for wave in split_into_waves(matrix, job.to_build) if executor.parallel_cells > 1 else (job.to_build,):
            failures += build_in_parallel(line, executor, wave)
            if any(isinstance(failure.error, RunAgainError) for failure in failures):
                break  # the others would only get as far
        with steps.step("index and search page"):
            write_pages(publisher.folder, render_site(matrix, publisher.rows()))
    return tuple(failures)


def split_into_waves(matrix: Matrix, cells: Sequence[Cell]) -> tuple[tuple[Cell, ...], ...]:
    """The cells in groups to build one after the other; those of a group share nothing that takes long to make.

    First one cell of each release's Triton wheel, which takes minutes; then one of each kernel set, among which the
    machine is divided for hours; then those that only link or label.
    """
    triton: dict[str, Cell] = {}
    for cell in cells:
        if cell.backend is Backend.TRITON:
            triton.setdefault(cell.flash_attn, cell)
    leaders = [set(triton.values()), {kernel_set.cells[0] for kernel_set in group_kernel_sets(matrix, cells)}]
    others = set(cells).difference(*leaders)
    return tuple(tuple(cell for cell in cells if cell in group) for group in (*leaders, others) if group)


@dataclass(frozen=True)
class CellPipeline:
    """What a cell passes through from its build to the release."""

    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    cache: Path
    publisher: DirectoryPublisher
    scratch: Path
    steps: Steps
    extended: Collection[str]
    scope: CompileScope
    quick: bool = False
    publish_lock: threading.Lock = field(default_factory=threading.Lock)
    """A release is changed by one cell at a time."""
    triton_lock: threading.Lock = field(default_factory=threading.Lock)
    """Triton wheels are verified one at a time: that takes every core, and the next label finds what it showed."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def build_and_publish(self, executor: Executor, cell: Cell) -> None:
        """Build, verify and publish a cell. Raises `FactoryError`."""
        with self.steps.step(cell.id) as part:
            path = build_cell(
                executor,
                cell,
                self.scratch,
                self._stopping_with(part),
                matrix=self.matrix,
                environ=self.environ,
                cache=self.cache,
                scope=self.scope,
            )
            added = as_addition(path, self._verify(path, cell, executor.find_gate_host))
            with self.publish_lock:
                publish(self.publisher, [added])

    def verify_published(self, executor: Executor, row: WheelRow) -> None:
        """Verify a wheel that the release holds, and keep in its row what the gates say. Raises `FactoryError`."""
        cell, path = Cell.parse(str(row.cell)), self.publisher.wheels_dir / row.filename
        yank = f"wheelfactory publish {self.publisher.folder} --yank {row.filename} --reason WHY"
        hint = f"it stays published as it was; if a gate found it wrong, yank it: `{yank}`"
        with self.steps.step(cell.id):
            publish(self.publisher, [as_addition(path, self._verify(path, cell, executor.find_gate_host), hint)])

    def build_and_publish_fallback(self, project: FallbackProject) -> Iterator[Failure]:
        """Build, verify and publish flash-attention-amd; gives why it is not there, if so. Raises `PublishError`."""
        try:
            with self.steps.step(FALLBACK_NAME):
                path = build_fallback(project, self.scratch, self.cache)
                publish(self.publisher, [as_addition(path, self._verify(path))])
        except PublishError:
            raise
        except FactoryError as error:
            yield Failure(FALLBACK_NAME, error)

    def _verify(
        self, path: Path, cell: Cell | None = None, elsewhere: Callable[[Cell], BuildHost | None] = lambda _: None
    ) -> tuple[GateResult, ...]:
        with self.triton_lock if cell and cell.backend is Backend.TRITON else nullcontext():
            return verify(
                path,
                cell,
                self.extended,
                elsewhere,
                quick=self.quick,
                matrix=self.matrix,
                host=self.host,
                environ=self.environ,
                cache=self.cache,
            )

    def _stopping_with(self, part: ProgressPart) -> ProgressPart:
        def checked(done: int, total: int, told: str = "") -> None:
            if self.stopped.is_set():
                raise FactoryError("interrupted", "while another cell was", "run the same command again to go on")
            part(done, total, told)

        return checked


def build_in_parallel(line: CellPipeline, executor: Executor, cells: Sequence[Cell]) -> list[Failure]:
    """Put cells through the line, as many at a time as the executor allows; gives those that failed.

    After one whose time is up no other is begun. Raises `PublishError` if the release is not as it should be, as no
    other wheel may go into it then.
    """
    count = min(executor.parallel_cells, len(cells))
    if count <= 1:
        return list(_in_turn((cell.id, partial(line.build_and_publish, executor, cell)) for cell in cells))
    failures = list(_without_place(executor, cells))
    rest = [cell for cell in cells if cell.id not in {failure.name for failure in failures}]
    with ThreadPoolExecutor(count) as pool:
        waiting = {pool.submit(line.build_and_publish, executor.split(count), cell): cell for cell in rest}
        try:
            for done in as_completed(waiting):
                error = None if done.cancelled() else done.exception()
                if isinstance(error, FactoryError) and not isinstance(error, PublishError):
                    failures.append(Failure(waiting[done].id, error))
                elif error:
                    raise error
                if isinstance(error, RunAgainError):
                    _cancel(waiting)
        except BaseException:
            _cancel(waiting)
            line.stopped.set()
            while wait(waiting, timeout=1).not_done:
                executor.stop()
                kill_running()
            raise
    order = [cell.id for cell in cells]
    return sorted(failures, key=lambda failure: order.index(failure.name))


def _without_place(executor: Executor, cells: Sequence[Cell]) -> Iterator[Failure]:
    """Make the places of CK cells, here, where an interruption ends it; gives the cells that cannot have one.

    Of Triton cells most only get a label, for which no image need be made.
    """
    for cell in cells:
        try:
            if cell.backend is Backend.CK:
                executor.prepare_host(cell, ignore_progress)
        except FactoryError as error:
            yield Failure(cell.id, error)


def exit_code(failures: Sequence[Failure]) -> int:
    """What a command ends with for failures: run again if any cell's time was up, else the code of the first."""
    if any(isinstance(failure.error, RunAgainError) for failure in failures):
        return RUN_AGAIN
    return failures[0].error.exit_code if failures else DONE


def _cancel(futures: Iterable[Future[None]]) -> None:
    """Begin none of these any more; unlike those that `shutdown` drops, they are still told of as done."""
    for future in futures:
        future.cancel()


def _in_turn(work: Iterable[tuple[str, Callable[[], None]]]) -> Iterator[Failure]:
    """Do what is to do for each cell; give those that failed."""
    for cell, do in work:
        try:
            do()
        except PublishError:
            raise
        except FactoryError as error:
            yield Failure(cell, error)
            if isinstance(error, RunAgainError):
                return
