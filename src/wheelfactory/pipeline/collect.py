"""Merge the shards that a run's kernel jobs left, upload finished kernel sets, and choose the cells to build."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from wheelfactory.core.errors import BuildError, FactoryError, RunAgainError, VerificationError
from wheelfactory.core.files import require_sealed, scratch_dir
from wheelfactory.kernels.archive import find_archives
from wheelfactory.kernels.archive_format import ARCHIVE_SUFFIX
from wheelfactory.kernels.compile import merge_set
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX
from wheelfactory.kernels.storage import ArchiveHost, upload_set
from wheelfactory.pipeline.jobs import CellJob, KernelSetJobs, WorkflowJobs

MAX_ROUNDS = 8
"""Successive runs for the same kernels. Eight rounds of five hours on four cores are 160 CPU hours, more than ten times
what the largest set takes (see docs/reference/plan.md), so a set that is still unfinished will never finish."""


RERUN_HINT = "check the network (PIP_INDEX_URL selects another package index), then re-run all jobs"


class SetState(str, Enum):
    """State of a kernel set after the kernel jobs of a run."""

    STORED = "stored"
    PENDING = "pending"
    FAILED = "failed"


@dataclass(frozen=True)
class CollectedSet:
    """A kernel set of the run, and the error if it is not stored."""

    set_jobs: KernelSetJobs
    error: FactoryError | None = None
    unattested: Mapping[str, str] = field(default_factory=dict)
    """The sha256, by file name, of an uploaded archive that counts as stored once it is attested and published."""

    @property
    def state(self) -> SetState:
        """Stored without an error; pending if a later run can go on."""
        if self.error is None:
            return SetState.STORED
        return SetState.PENDING if isinstance(self.error, RunAgainError) else SetState.FAILED


def take_sealed(artifacts: Path, seals: Mapping[str, str], dest: Path) -> None:
    """Move the kernels and proofs of artifacts, each in a folder of its name below `artifacts`, into `dest`.

    `seals` has the digest of each artifact by the name of its job, which is that of the artifact. Raises
    `VerificationError` for any other artifact, and for a file that belongs to another one.
    """
    dest.mkdir(parents=True, exist_ok=True)
    for folder in sorted(artifacts.glob(f"{STORED_SET_PREFIX}*")):
        require_sealed(folder.name, seals.get(folder.name, ""), folder)
        name = folder.name.removeprefix(STORED_SET_PREFIX)
        for path in folder.iterdir():
            if _KEY.sub("", path.name) not in (f"{name}{ARCHIVE_SUFFIX}", f"{name}.json"):
                hint = "find out what wrote it: a job seals the kernels or the proof that its name says, nothing else"
                raise VerificationError("a file of another job", f"{path.name} in artifact {folder.name}", hint)
            path.replace(dest / path.name)


_KEY = re.compile(r"-[0-9a-f]{16}(?=\.)")


def collect_sets(jobs: WorkflowJobs, folder: Path, host: ArchiveHost) -> tuple[CollectedSet, ...]:
    """Merge the shards of each set in `folder`, and upload every complete set to `host`."""
    # One set at a time, deleted after its upload: all sets together would fill a runner's disk.
    return tuple(_collect_set(set_jobs, folder, host) for set_jobs in jobs.kernel_sets)


def _collect_set(set_jobs: KernelSetJobs, folder: Path, host: ArchiveHost) -> CollectedSet:
    if set_jobs.stored:
        return CollectedSet(set_jobs)
    try:
        return CollectedSet(set_jobs, unattested=_merge_and_upload(set_jobs, folder, host))
    except FactoryError as error:
        return CollectedSet(set_jobs, error)


def _merge_and_upload(set_jobs: KernelSetJobs, folder: Path, host: ArchiveHost) -> Mapping[str, str]:
    """Return what `upload_set` does. Raises `RunAgainError` for a set that is not complete yet."""
    if set_jobs.unavailable:
        raise BuildError("kernel set not planned", f"{set_jobs.id}: {set_jobs.unavailable}", RERUN_HINT)
    if not set_jobs.shards:
        raise RunAgainError("compile not started", set_jobs.id, "its shards exceed the jobs of one run")
    shards = find_archives(folder, set_jobs.id)  # contains the archive of an unsplit set, which stays
    with scratch_dir(folder) as stores:
        archive = merge_set(folder, set_jobs.id, stores)
        unattested = upload_set(host, set_jobs.archive_name, archive)
    if archive not in shards:
        archive.unlink()
    return unattested


def fail_after_last_round(collected: Sequence[CollectedSet], round_number: int) -> tuple[CollectedSet, ...]:
    """Return the same sets; in round `MAX_ROUNDS`, every pending set becomes a failed one."""
    if round_number < MAX_ROUNDS:
        return tuple(collected)
    hint = "estimate the set with `wheelfactory plan`, choose a larger runner, and dispatch the workflow again"

    def fail_pending(item: CollectedSet) -> CollectedSet:
        which = f"{item.set_jobs.id} after {round_number} runs ({item.error})"
        error = BuildError("kernel set not compiled", which, hint)
        return CollectedSet(item.set_jobs, error) if item.state is SetState.PENDING else item

    return tuple(map(fail_pending, collected))


def buildable_cells(
    jobs: WorkflowJobs, collected: Collection[CollectedSet], published: Collection[str]
) -> tuple[CellJob, ...]:
    """Return the cells to build in this run; `published` are the cell ids published since the run started."""
    # A release is published once and complete, so no cell is built while any kernel set is pending.
    if any(item.state is SetState.PENDING for item in collected):
        return ()
    failed = {item.set_jobs.id for item in collected if item.state is SetState.FAILED}
    return tuple(cell for cell in jobs.cells if failed.isdisjoint(cell.kernel_sets) and cell.id not in published)
