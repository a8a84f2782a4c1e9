"""Compare the cells that a workflow run selected and published, and render the job summary.

The comparison does not trust job results. GitHub can drop cells without a failure: a job whose matrix is too large
never starts, and the jobs after it can still pass. Failed jobs are named even if every cell is published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from wheelfactory.core.wrap import count_text
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.coverage import NEEDS_RUNNER, decisive_rows, runner_note
from wheelfactory.site.markdown import MarkdownSection, code_span, escape, fit_sections, size_text, table
from wheelfactory.verify.result import Status

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
        counts = f"selected {len(self.selected)}, published {len(self.published)}, missing {len(self.gaps)}"
        return f"{counts}{pending}"

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
