"""What the jobs of a workflow run left: kernel sets to upload, cells to build, and at the end the published cells.

At the end, the cells that the run selected are compared with those published, without trust in job results. GitHub can
drop cells without a failure: a job whose matrix is too large never starts, and the jobs after it can still pass. Failed
jobs are named even if every cell is published.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from wheelfactory.core.errors import BuildError, FactoryError, RunAgainError, VerificationError
from wheelfactory.core.files import require_sealed, scratch_dir
from wheelfactory.core.wrap import count_text
from wheelfactory.kernels.archive import find_archives
from wheelfactory.kernels.archive_format import ARCHIVE_SUFFIX
from wheelfactory.kernels.compile import merge_set
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX
from wheelfactory.kernels.storage import ArchiveHost, upload_set
from wheelfactory.pipeline.jobs import CellJob, KernelSetJobs, WorkflowJobs
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.coverage import NEEDS_RUNNER, decisive_rows, runner_note
from wheelfactory.site.markdown import MarkdownSection, code_span, escape, fit_sections, size_text, table
from wheelfactory.verify.result import Status

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
    collected = []
    # One set at a time, deleted after its upload: all sets together would fill a runner's disk.
    for set_jobs in jobs.kernel_sets:
        try:
            unattested = {} if set_jobs.stored else _merge_and_upload(set_jobs, folder, host)
            collected.append(CollectedSet(set_jobs, unattested=unattested))
        except FactoryError as error:
            collected.append(CollectedSet(set_jobs, error))
    return tuple(collected)


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


_NEXT_STEPS = (
    "1. Open the failed job of the batch with a cell below; its log ends with `error:` and `hint:`.",
    "2. Run `./factory explain LOG` to see why a build failed and how to fix it.",
    "3. Choose *Re-run failed jobs*: built and published cells are kept, and nothing is published twice.",
)
_GOOD = ("success", "skipped")


@dataclass(frozen=True)
class Reconciliation:
    """Outcome of a workflow run."""

    selected: Collection[str]
    """Ids of the cells that the run was to publish."""
    available: Collection[str]
    """Ids of all cells that can be installed after the run (`manifest.available_cells`)."""
    waiting: Collection[str] = ()
    """Ids of cells that may wait for kernels, which a later run compiles."""
    unplanned: Collection[str] = ()
    """Ids of cells that were not selected, because only a runner of one's own can build them; these are not gaps."""
    results: Collection[str] = ()
    """The result of each job, as ``JOB=RESULT``."""

    # A published cell that this run did not build comes from an earlier attempt of the same run: not a gap.

    @property
    def published(self) -> list[str]:
        """The selected cells that are published."""
        return sorted(set(self.selected).intersection(self.available))

    @property
    def pending(self) -> list[str]:
        """The selected cells that wait for kernels."""
        return sorted(set(self.selected).intersection(self.waiting).difference(self.available))

    @property
    def gaps(self) -> list[str]:
        """The other selected cells that are not published."""
        return sorted(set(self.selected).difference(self.available, self.waiting))

    @property
    def not_built_here(self) -> list[str]:
        """The cells that need a runner and are not published."""
        return sorted(set(self.unplanned).difference(self.available))

    @property
    def failed(self) -> list[str]:
        """The results of jobs that neither succeeded nor were skipped: GitHub calls a timeout `cancelled`."""
        return [result for result in self.results if result.partition("=")[2] not in _GOOD]

    @property
    def complete(self) -> bool:
        """Whether every selected cell is published or pending, and no job failed."""
        return not self.gaps and not self.failed

    def lines(self) -> list[str]:
        """The counts, then a line for each gap and each failed job, as plain text."""
        gaps = [f"missing  {cell}: not published" for cell in self.gaps]
        return [self._counts, *gaps, *(f"job  {result}" for result in self.failed), *self._notes]

    def markdown(self) -> str:
        """The verdict, the next steps if cells are missing, then the content of `lines` without the gaps."""
        number = count_text(len(self.gaps), "selected cell")
        verdict = f"**Missing: {number}.**" if self.gaps else "**No selected cell is missing.**"
        failed = [f"job {code_span(result)}" for result in self.failed]
        details = [f"- {line}" for line in (self._counts, *failed, *self._notes)]
        return "\n".join([verdict, "", *([*_NEXT_STEPS, ""] if self.gaps else []), *details, ""])

    @property
    def _counts(self) -> str:
        pending = f", pending {len(self.pending)} (kernels not compiled yet)" if self.pending else ""
        return f"selected {len(self.selected)}, published {len(self.published)}, missing {len(self.gaps)}{pending}"

    @property
    def _notes(self) -> Iterator[str]:
        if earlier := len(set(self.available).difference(self.selected)):
            yield f"published by earlier runs: {count_text(earlier, 'cell')}"
        if self.not_built_here:
            yield runner_note(len(self.not_built_here))


# bytes; GitHub limits a step summary to 1 MiB and drops a larger one
SUMMARY_LIMIT = 1_000_000


def job_summary(outcome: Reconciliation, rows: Iterable[WheelRow]) -> str:
    """Render the summary as Markdown; `rows` supply sizes and gate results where they are known."""
    wheels = decisive_rows(rows)
    states = {
        **dict.fromkeys(outcome.gaps, "**missing**"),  # first, because `fit_sections` cuts the end of a long table
        **dict.fromkeys(outcome.published, "published"),
        **dict.fromkeys(outcome.pending, "pending: kernels not compiled yet"),
        **dict.fromkeys(outcome.not_built_here, NEEDS_RUNNER),
    }
    known = {cell: (size_text(row.size), _gates(row)) for cell in states if (row := wheels.get(cell))}
    cells = ([code_span(cell), state, *known.get(cell, ("", ""))] for cell, state in states.items())
    lines = table(("cell", "state", "size", "gates"), cells)
    verdict = MarkdownSection((outcome.markdown(),))
    listing = MarkdownSection(("Nothing to build: every selected cell is published.",))
    if states:
        listing = MarkdownSection(("## Cells", "", *lines[:2]), tuple(lines[2:]))
    return fit_sections([verdict, listing], SUMMARY_LIMIT)


def _gates(row: WheelRow) -> str:
    """Summarize the gates of a wheel, such as ``7 passed; not run: gpu``, after the reason if it is unverified."""
    names: dict[Status, list[str]] = {}
    for gate in row.gates:
        names.setdefault(gate.status, []).append(escape(gate.gate))
    reason = unverified_reason(row)
    parts = [f"**{escape(reason)}**"] if reason else []
    parts.append(f"{len(names.get(Status.PASSED, ()))} passed")
    parts += [f"{status}: {', '.join(names[status])}" for status in (Status.FAILED, Status.NOT_RUN) if status in names]
    return "; ".join(parts)
