"""The whole job for the cells selected: build, verify, publish into a directory, write its index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.build import build_cell
from wheelfactory.cell import Cell
from wheelfactory.errors import BuildError, FactoryError, PublishError, VerificationError
from wheelfactory.files import scratch_dir, sha256_of
from wheelfactory.index import make_pages, write_index
from wheelfactory.manifest import WheelRow, published_cells
from wheelfactory.matrix.facts import Dependency
from wheelfactory.matrix.select import unpublished
from wheelfactory.progress import Part, Steps
from wheelfactory.publish import Publisher, publish
from wheelfactory.recipe import make_recipe
from wheelfactory.repair import glibc_of
from wheelfactory.sources import fetch_file
from wheelfactory.verify.gates import refused, verify
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import read_record
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
    """Split the cells into those to build, those published already, and those this machine cannot build."""
    missing = unpublished(cells, published_cells(publisher.rows()))
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


def run_job(workshop: Workshop, job: Job, publisher: Publisher, folder: Path) -> tuple[Failure, ...]:
    """Build, verify and publish what is to do, wheel by wheel, then write the index below `folder`.

    A wheel is published as soon as it is verified, so an interrupted run has lost one cell at most. A cell that
    fails does not stop the others; gives those that did.
    """
    failures = []
    with Steps(len(job.todo) + 1) as steps, scratch_dir(workshop.cache) as scratch:
        if job.todo:
            publish(publisher, _dependencies(workshop, publisher.rows()))
        for cell in job.todo:
            try:
                with steps.step(cell.id) as part:
                    _one(workshop, cell, publisher, scratch, part)
            except PublishError:
                raise  # the release is not as it should be, so no other wheel may go into it
            except FactoryError as error:
                failures.append(Failure(cell, error))
        with steps.step("index"):
            write_index(folder, make_pages(publisher.rows()))
    return tuple(failures)


def _one(workshop: Workshop, cell: Cell, publisher: Publisher, scratch: Path, part: Part) -> None:
    path = build_cell(workshop, cell, scratch, part)
    gates = verify(path, workshop, cell)
    refuse(path, gates)
    publish(publisher, [(wheel_row(path, gates), path)])
    path.unlink()


def _dependencies(workshop: Workshop, rows: Sequence[WheelRow]) -> Iterator[tuple[WheelRow, Path]]:
    """The wheels that the index carries beside flash-attn, as far as they are not published yet."""
    present = {row.filename for row in rows}
    for project, dependency in workshop.matrix.dependencies.items():
        if dependency.wheel not in present:
            yield _dependency(workshop, project, dependency)


def _dependency(workshop: Workshop, project: str, dependency: Dependency) -> tuple[WheelRow, Path]:
    path = fetch_file(project, dependency.wheel, dependency.sha256, workshop.cache / "sources", workshop.environ)
    return wheel_row(path), path


def refuse(path: Path, gates: tuple[GateResult, ...]) -> None:
    """Raise `VerificationError` unless every required gate passed; each finding is one line of it."""
    if not refused(gates):
        return
    lines = [f"{gate.gate}: {finding}" for gate in gates for finding in gate.findings]
    lines += [f"{gate.gate}: not run ({gate.detail})" for gate in gates if gate.status == "not run"]
    raise VerificationError("verification refused", "\n  ".join([path.name, *lines]), "nothing was published of it")


def wheel_row(path: Path, gates: tuple[GateResult, ...] = ()) -> WheelRow:
    """The manifest row of a wheel, with the time of now. Raises `InputError` if the file is no wheel."""
    wheel = Wheel.open(path)
    record = read_record(wheel)
    glibc = glibc_of(wheel)
    return WheelRow(
        project=str(wheel.name),
        version=str(wheel.version),
        filename=path.name,
        sha256=sha256_of(path),
        size=path.stat().st_size,
        requires_python=str(wheel.metadata["Requires-Python"] or ""),
        metadata_sha256=hashlib.sha256(wheel.metadata_bytes).hexdigest(),
        published=datetime.now(timezone.utc).replace(microsecond=0),
        cell=record.cell if record else None,
        label=record.label if record else None,
        offload_archs=record.offload_archs if record else (),
        cxx11_abi=record.toolchain.cxx11_abi if record else None,
        glibc=str(glibc) if glibc else None,
        source=record.source if record else None,
        gates=gates,
    )
