"""The whole job for the cells selected: build, verify, publish into a directory, write its index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.build import build_cell
from wheelfactory.cell import Cell
from wheelfactory.errors import BuildError, FactoryError, PublishError, RunAgainError
from wheelfactory.files import scratch_dir
from wheelfactory.index import make_pages, write_index
from wheelfactory.kernels.handover import ALL, Wanted
from wheelfactory.manifest import published_cells
from wheelfactory.matrix.select import unpublished
from wheelfactory.progress import Steps
from wheelfactory.publish import Publisher, publish
from wheelfactory.publish.additions import addition, missing_dependencies
from wheelfactory.recipe import make_recipe
from wheelfactory.verify.gates import verify
from wheelfactory.workshop import Workshop


@dataclass(frozen=True)
class Failure:
    """A cell without a wheel, and the error that says why: it cannot be built here, or its build or a gate failed."""

    cell: Cell
    error: FactoryError


@dataclass(frozen=True)
class Job:
    """What is to be done on this machine for a selection of cells."""

    todo: tuple[Cell, ...]
    already: tuple[Cell, ...]
    refusals: tuple[Failure, ...]


def plan_job(workshop: Workshop, cells: Sequence[Cell], publisher: Publisher) -> Job:
    """Split the cells into those to build, those published already, and those this machine cannot build.

    A cell whose published file is gone is built again, which gives the same file. Raises `PublishError` if a
    published file was changed.
    """
    held = [row for row in publisher.rows() if publisher.holds(row)]
    missing = unpublished(cells, published_cells(held))
    refusals = tuple(_refusals(workshop, missing))
    refused_cells = {refusal.cell for refusal in refusals}
    return Job(
        todo=tuple(cell for cell in missing if cell not in refused_cells),
        already=tuple(cell for cell in cells if cell not in missing),
        refusals=refusals,
    )


def _refusals(workshop: Workshop, cells: Sequence[Cell]) -> Iterator[Failure]:
    for cell in cells:
        try:
            make_recipe(workshop.matrix, cell, workshop.host, workshop.environ, by_hand=False)
        except BuildError as error:
            yield Failure(cell, error)


def run_job(
    workshop: Workshop,
    job: Job,
    publisher: Publisher,
    folder: Path,
    extended: Collection[str] = (),
    wanted: Wanted = ALL,
) -> tuple[Failure, ...]:
    """Build, verify and publish what is to do, wheel by wheel, then write the index below `folder`.

    `extended` names the gates to run beside the required ones; `wanted` says where kernels may come from, and how long
    it may take.

    A wheel is published as soon as it is verified, so an interrupted run has lost one cell at most. A cell that
    fails does not stop the others; gives those that did.
    """
    failures = []
    with Steps(len(job.todo) + 1) as steps, scratch_dir(workshop.cache) as scratch:
        if job.todo:
            publish(publisher, missing_dependencies(workshop, publisher))
        for cell in job.todo:
            try:
                with steps.step(cell.id) as part:
                    path = build_cell(workshop, cell, scratch, part, wanted=wanted)
                    publish(publisher, [addition(path, verify(path, workshop, cell, extended))])
            except RunAgainError as error:
                failures.append(Failure(cell, error))
                break  # the others would only get as far
            except PublishError:
                raise  # the release is not as it should be, so no other wheel may go into it
            except FactoryError as error:
                failures.append(Failure(cell, error))
        with steps.step("index"):
            write_index(folder, make_pages(publisher.rows()))
    return tuple(failures)
