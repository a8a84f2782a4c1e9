"""Compare the cells that a workflow run selected and published, and render the job summary.

The comparison does not trust job results. GitHub can drop cells without a failure: a job whose matrix is too large
never starts, and the jobs after it can still pass. Failed jobs are named even if every cell is published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
    """Outcome of a workflow run; every field but the last holds sorted cell ids."""

    selected: tuple[str, ...]
    published: tuple[str, ...]
    """Selected and published."""
    pending: tuple[str, ...]
    """Selected but not built yet, because a later run compiles their kernels; these are not gaps."""
    gaps: tuple[str, ...]
    """Selected cells that are not published."""
    published_unselected: tuple[str, ...]
    """Mostly from earlier runs, because a manifest lists every published wheel."""
    unplanned: tuple[str, ...]
    """Not selected, because only a runner of one's own can build them; these are not gaps."""
    failed: tuple[str, ...]
    """Jobs that neither succeeded nor were skipped, each as ``JOB=RESULT``: GitHub calls a timeout `cancelled`."""

    @property
    def complete(self) -> bool:
        """Whether every selected cell is published or pending, and no job failed."""
        return not self.gaps and not self.failed

    def lines(self) -> list[str]:
        """The counts, then a line for each gap and each failed job, as plain text."""
        gaps = [f"missing  {cell}: not published" for cell in self.gaps]
        return [self._counts, *gaps, *(f"job  {result}" for result in self.failed), *self._notes]

    def markdown(self) -> str:
        """The verdict, the next steps if cells are missing, then the content of `lines`, as Markdown."""
        number = count_text(len(self.gaps), "selected cell")
        verdict = f"**Missing: {number}.**" if self.gaps else "**No selected cell is missing.**"
        gaps = [f"- {code_span(cell)}: not published" for cell in self.gaps]
        failed = [f"- job {code_span(result)}" for result in self.failed]
        details = [f"- {self._counts}", *failed, *gaps, *(f"- {line}" for line in self._notes)]
        return "\n".join([verdict, "", *([*_NEXT_STEPS, ""] if self.gaps else []), *details, ""])

    @property
    def _counts(self) -> str:
        pending = f", pending {len(self.pending)} (kernels not compiled yet)" if self.pending else ""
        return f"selected {len(self.selected)}, published {len(self.published)}, missing {len(self.gaps)}{pending}"

    @property
    def _notes(self) -> list[str]:
        earlier, unplanned = len(self.published_unselected), len(self.unplanned)
        return [
            *([f"published by earlier runs: {count_text(earlier, 'cell')}"] if earlier else []),
            *([runner_note(unplanned)] if unplanned else []),
        ]


def reconcile(
    selected: Collection[str],
    published: Collection[str],
    pending: Collection[str] = (),
    unplanned: Collection[str] = (),
    results: Iterable[str] = (),
) -> Reconciliation:
    """Compare cell ids; `published` are all cells that can be installed after the run (`coverage.available_cells`).

    `pending`: cells that may wait for kernels; `unplanned`: cells that need a runner; `results`: of all jobs.
    """
    # A published cell that this run did not build comes from an earlier attempt of the same run: not a gap.
    missing = set(selected) - set(published)
    waiting = missing & set(pending)
    return Reconciliation(
        selected=tuple(sorted(set(selected))),
        published=tuple(sorted(set(selected) & set(published))),
        pending=tuple(sorted(waiting)),
        gaps=tuple(sorted(missing - waiting)),
        published_unselected=tuple(sorted(set(published) - set(selected))),
        unplanned=tuple(sorted(set(unplanned) - set(published))),
        failed=tuple(result for result in results if result.partition("=")[2] not in _GOOD),
    )


# bytes; GitHub limits a step summary to 1 MiB and drops a larger one
SUMMARY_LIMIT = 1_000_000


def job_summary(outcome: Reconciliation, rows: Iterable[WheelRow]) -> str:
    """Render the summary as Markdown; `rows` supply sizes and gate results where they are known."""
    wheels = decisive_rows(rows)
    states = {**dict.fromkeys(outcome.selected, "**missing**"), **dict.fromkeys(outcome.published, "published")}
    states.update(dict.fromkeys(outcome.pending, "pending: kernels not compiled yet"))
    states.update(dict.fromkeys(outcome.unplanned, NEEDS_RUNNER))
    # missing cells first, because `fit_sections` cuts the end of a long table
    cells = [*outcome.gaps, *(cell for cell in outcome.selected if cell not in outcome.gaps), *outcome.unplanned]
    lines = table(
        ("cell", "state", "size", "gates"),
        (
            [code_span(cell), states[cell], *((size_text(row.size), _gates(row)) if row else ("", ""))]
            for cell, row in ((cell, wheels.get(cell)) for cell in cells)
        ),
    )
    verdict = MarkdownSection((outcome.markdown(),))
    listing = (
        MarkdownSection(("## Cells", "", *lines[:2]), tuple(lines[2:]))
        if cells
        else MarkdownSection(("Nothing to build: every selected cell is published.",))
    )
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
