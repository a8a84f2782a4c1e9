"""Planned, built and published cell ids -> what is missing, and the job summary: the last word, whatever jobs say.

GitHub can lose cells without a failure: a job whose matrix is too large never starts, and jobs after it may pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.coverage import decisive_rows
from wheelfactory.site.markdown import MarkdownSection, code_span, count_text, escape, fit_sections, size_text, table
from wheelfactory.verify.result import Status

_NOT_BUILT = "no verified wheel reached the upload"
_NOT_PUBLISHED = "its wheel was verified and is not published"

_NEXT_STEPS = (
    "1. Open the failed job of a cell below; its log ends with `error:` and `hint:`.",
    "2. `./factory explain LOG` says what stopped a build, and what to change.",
    "3. *Re-run failed jobs* goes on from here: what is built and published is kept, nothing is published twice.",
)
_UNPLANNED = "A job has left what it should not: find out which and why, before anything of this run is run again."


@dataclass(frozen=True)
class Gap:
    """A planned cell that is not published, and the last place that it is missing from."""

    cell: str
    reason: str


@dataclass(frozen=True)
class Reconciliation:
    """What became of a run's cells; every field holds cell ids, sorted."""

    selected: tuple[str, ...]
    published: tuple[str, ...]
    """Planned and published."""
    pending: tuple[str, ...]
    """Planned, and neither built nor published because kernels are still to be compiled; no gap."""
    gaps: tuple[Gap, ...]
    built_unselected: tuple[str, ...]
    published_unselected: tuple[str, ...]
    """Mostly those of earlier runs, because a manifest names all that was ever published."""

    @property
    def complete(self) -> bool:
        """Whether nothing is missing that should be there by now, and nothing is there that nobody asked for."""
        return not self.gaps and not self.built_unselected

    def lines(self) -> list[str]:
        """For a person: the sums, each gap, and what is no gap but was not expected."""
        gaps = [f"missing  {gap.cell}: {gap.reason}" for gap in self.gaps]
        extra = [f"not planned, yet built  {cell}" for cell in self.built_unselected]
        return [self._sums, *gaps, *extra, *self._earlier]

    def markdown(self) -> str:
        """For a job summary: the verdict, what to do if cells are missing, then what `lines` says."""
        number = count_text(len(self.gaps), "planned cell")
        verdict = f"**Missing: {number}.**" if self.gaps else "**Nothing that was planned is missing.**"
        if self.built_unselected:
            verdict = f"**{count_text(len(self.built_unselected), 'cell')} built that nobody planned.** {_UNPLANNED}"
        gaps = [f"- {code_span(gap.cell)}: {gap.reason}" for gap in self.gaps]
        extra = [f"- {code_span(cell)}: not planned, yet built" for cell in self.built_unselected]
        told = [f"- {self._sums}", *gaps, *extra, *(f"- {line}" for line in self._earlier)]
        return "\n".join([verdict, "", *([*_NEXT_STEPS, ""] if self.gaps else []), *told, ""])

    @property
    def _sums(self) -> str:
        later = f", later {len(self.pending)} (kernels are still to be compiled)" if self.pending else ""
        return f"planned {len(self.selected)}, published {len(self.published)}, missing {len(self.gaps)}{later}"

    @property
    def _earlier(self) -> list[str]:
        number = count_text(len(self.published_unselected), "cell")
        return [f"published without being planned, as by earlier runs: {number}"] if self.published_unselected else []


def reconcile(
    selected: Collection[str], built: Collection[str], published: Collection[str], pending: Collection[str] = ()
) -> Reconciliation:
    """The account of a run. `published` is all that can be installed (`coverage.available_cells`) after it.

    A cell that is published and was not built in this run was published by an earlier attempt of it: no gap. One of
    `later` that has been built must be published like any other.
    """
    wanted, made, there = set(selected), set(built), set(published)
    waiting = (wanted & set(pending)) - made - there
    gaps = [Gap(cell, _NOT_PUBLISHED if cell in made else _NOT_BUILT) for cell in sorted(wanted - there - waiting)]
    return Reconciliation(
        tuple(sorted(wanted)),
        tuple(sorted(wanted & there)),
        tuple(sorted(waiting)),
        tuple(gaps),
        tuple(sorted(made - wanted)),
        tuple(sorted(there - wanted - made)),
    )


SUMMARY_LIMIT = 1_000_000
"""Bytes; GitHub takes 1 MiB as the summary of a step, and drops one that is larger."""

_TOLD = (Status.FAILED, Status.NOT_RUN)


def job_summary(account: Reconciliation, rows: Iterable[WheelRow]) -> str:
    """The summary as Markdown; `rows` are those of the wheels that the run made, as far as they are known."""
    wheels = decisive_rows(rows)
    states = {**dict.fromkeys(account.selected, "**missing**"), **dict.fromkeys(account.published, "published")}
    states.update(dict.fromkeys(account.pending, "later: its kernels are still to be compiled"))
    missing = dict.fromkeys(gap.cell for gap in account.gaps)
    cells = [*missing, *(cell for cell in account.selected if cell not in missing)]
    lines = table(
        ("cell", "state", "size", "gates"),
        (
            [code_span(cell), states[cell], *((size_text(row.size), _gates(row)) if row else ("", ""))]
            for cell, row in ((cell, wheels.get(cell)) for cell in cells)
        ),
    )
    told = MarkdownSection((account.markdown(),))
    listed = (
        MarkdownSection(("## Cells", "", *lines[:2]), tuple(lines[2:]))
        if cells
        else MarkdownSection(("Nothing to build: every cell selected is published.",))
    )
    return fit_sections([told, listed], SUMMARY_LIMIT)


def _gates(row: WheelRow) -> str:
    """What makes it not verified, how many passed, and the names of those that did not: ``7 passed; not run: gpu``."""
    names: dict[Status, list[str]] = {}
    for gate in row.gates:
        names.setdefault(gate.status, []).append(escape(gate.gate))
    passed = f"{len(names.get(Status.PASSED, ()))} passed"
    told = [f"**{escape(why)}**"] if (why := unverified_reason(row)) else []
    return "; ".join([*told, passed, *(f"{status}: {', '.join(names[status])}" for status in _TOLD if status in names)])
