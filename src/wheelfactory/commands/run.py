"""`wheelfactory run`."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from wheelfactory.commands.executor_options import add_executor, add_kernels, any_compiled, executor_of, wanted_of
from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_dest,
    add_extended,
    add_matrix,
    add_only,
    add_quick,
    cache_of,
    directory,
    show,
    tell,
)
from wheelfactory.core.errors import BUILD_FAILED, DONE, NOTHING_TO_DO
from wheelfactory.core.files import locked, remove_scratch
from wheelfactory.core.host import read_host
from wheelfactory.explain.failure import hint_of
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import select
from wheelfactory.pipeline.run import Failure, Job, exit_code, plan_job, run_job
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified
from wheelfactory.site import advice
from wheelfactory.site.markdown import count_text
from wheelfactory.verify.gates import named


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_matrix(parser)
    add_only(parser)
    add_cache(parser)
    add_quick(parser)
    add_extended(parser)
    add_kernels(parser)
    add_executor(parser)
    add_dest(parser, "wheelhouse", "release directory")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Build, verify and publish the selected cells into a directory with its index; print how to install."""
    started = time.time()
    extended = tuple(named(options.extended))
    matrix, host, cache = load_matrix(options.matrix), read_host(environ), cache_of(options, environ)
    cells = select(expand(matrix), options.only)
    publisher = DirectoryPublisher(directory(options.dest))
    with (
        locked(publisher.folder),
        executor_of(
            options, compiled=any_compiled(cells), matrix=matrix, host=host, environ=environ, cache=cache
        ) as executor,
    ):
        remove_scratch(publisher.folder)
        remove_scratch(cache)
        job = plan_job(executor, cells, publisher, quick=options.quick, matrix=matrix, environ=environ)
        wanted = wanted_of(options, started)
        failures = run_job(
            executor,
            job,
            publisher,
            extended,
            wanted,
            quick=options.quick,
            matrix=matrix,
            host=host,
            environ=environ,
            cache=cache,
        )
    _report(job, failures, publisher, matrix if host.rocm is None else None)
    if failures or job.refusals:
        return exit_code(failures) or BUILD_FAILED
    return DONE if job.todo or job.to_verify else NOTHING_TO_DO


def _report(job: Job, failures: Sequence[Failure], publisher: DirectoryPublisher, without_rocm: Matrix | None) -> None:
    rows = publisher.rows()
    if not (job.todo or job.to_verify) and job.already:
        tell(f"nothing to build: {len(job.already)} of the cells selected are published already")
    if rows:
        show(f"wheels: {publisher.wheels} ({sum(row.cell is not None for row in rows)})")
        show(*_unverified_lines(rows))
        show(f"index: {publisher.folder / 'simple'}")
        show(f"search page: {publisher.folder / 'index.html'}, doctor: {publisher.folder / 'doctor.py'}")
    wanted = {*(cell.id for cell in (*job.todo, *job.already)), *(row.cell for row in job.to_verify)}
    _show_lines([row for row in rows if row.cell in wanted and row.yanked is None], publisher.folder, without_rocm)
    _tell_failures(job, failures)


def _unverified_lines(rows: Sequence[WheelRow]) -> list[str]:
    """How many of the wheels are not verified, for each reason."""
    reasons = Counter(filter(None, (unverified(row) for row in rows if row.cell and row.yanked is None)))
    cure = "run again without --quick to verify them"
    return [f"{count_text(number, 'wheel')} {reason}; {cure}" for reason, number in reasons.items()]


def _show_lines(rows: Sequence[WheelRow], folder: Path, without_rocm: Matrix | None) -> None:
    """The lines that install what was selected; on a machine `without_rocm`, with its matrix, one that works first."""
    row = advice.pick_for_trial(rows, without_rocm) if without_rocm else None
    if row and without_rocm:
        show("install here, without ROCm (CPU torch: it imports, to compute it needs a GPU):")
        show(f"  {advice.trial_line(row, folder, without_rocm)}")
    if lines := advice.install_lines(rows, folder):
        show("install where that torch for that ROCm is installed already:", *(f"  {line}" for line in lines))


def _tell_failures(job: Job, failures: Sequence[Failure]) -> None:
    for failure in failures:
        tell(f"error: {failure.name}: {failure.error}")
        tell(f"hint: {hint_of(failure.error)}")
    for reason, count in Counter(refusal.error.which for refusal in job.refusals).items():
        first = next(refusal for refusal in job.refusals if refusal.error.which == reason)
        tell(f"error: {count} of the cells selected cannot be built here: {reason} (such as {first.name})")
        tell(f"hint: {first.error.hint}; or select others: --only '*-triton' builds anywhere")
