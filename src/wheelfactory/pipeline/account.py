"""Planned, built and published cell ids -> what is missing, and the job summary: the last word, whatever jobs say.

GitHub can lose cells without a failure: a job whose matrix is too large never starts, and jobs after it may pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified
from wheelfactory.site.coverage import decisive_rows
from wheelfactory.site.markdown import Section, code, count_text, fitted, prose, size_text, table
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
    missing: str


@dataclass(frozen=True)
class Account:
    """What became of a run's cells; every field holds cell ids, sorted."""

    planned: tuple[str, ...]
    done: tuple[str, ...]
    """Planned and published."""
    later: tuple[str, ...]
    """Planned, and neither built nor published because kernels are still to be compiled; no gap."""
    gaps: tuple[Gap, ...]
    built_unplanned: tuple[str, ...]
    published_unplanned: tuple[str, ...]
    """Mostly those of earlier runs, because a manifest names all that was ever published."""

    @property
    def complete(self) -> bool:
        """Whether nothing is missing that should be there by now, and nothing is there that nobody asked for."""
        return not self.gaps and not self.built_unplanned

    def lines(self) -> list[str]:
        """For a person: the sums, each gap, and what is no gap but was not expected."""
        gaps = [f"missing  {gap.cell}: {gap.missing}" for gap in self.gaps]
        extra = [f"not planned, yet built  {cell}" for cell in self.built_unplanned]
        return [self._sums, *gaps, *extra, *self._earlier]

    def markdown(self) -> str:
        """For a job summary: the verdict, what to do if cells are missing, then what `lines` says."""
        number = count_text(len(self.gaps), "planned cell")
        verdict = f"**Missing: {number}.**" if self.gaps else "**Nothing that was planned is missing.**"
        if self.built_unplanned:
            verdict = f"**{count_text(len(self.built_unplanned), 'cell')} built that nobody planned.** {_UNPLANNED}"
        gaps = [f"- {code(gap.cell)}: {gap.missing}" for gap in self.gaps]
        extra = [f"- {code(cell)}: not planned, yet built" for cell in self.built_unplanned]
        told = [f"- {self._sums}", *gaps, *extra, *(f"- {line}" for line in self._earlier)]
        return "\n".join([verdict, "", *([*_NEXT_STEPS, ""] if self.gaps else []), *told, ""])

    @property
    def _sums(self) -> str:
        later = f", later {len(self.later)} (kernels are still to be compiled)" if self.later else ""
        return f"planned {len(self.planned)}, published {len(self.done)}, missing {len(self.gaps)}{later}"

    @property
    def _earlier(self) -> list[str]:
        number = count_text(len(self.published_unplanned), "cell")
        return [f"published without being planned, as by earlier runs: {number}"] if self.published_unplanned else []


def compare(
    planned: Collection[str], built: Collection[str], published: Collection[str], later: Collection[str] = ()
) -> Account:
    """The account of a run. `published` is all that can be installed (`coverage.available_cells`) after it.

    A cell that is published and was not built in this run was published by an earlier attempt of it: no gap. One of
    `later` that has been built must be published like any other.
    """
    wanted, made, there = set(planned), set(built), set(published)
    waiting = (wanted & set(later)) - made - there
    gaps = [Gap(cell, _NOT_PUBLISHED if cell in made else _NOT_BUILT) for cell in sorted(wanted - there - waiting)]
    return Account(
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


def job_summary(account: Account, rows: Iterable[WheelRow]) -> str:
    """The summary as Markdown; `rows` are those of the wheels that the run made, as far as they are known."""
    wheels = decisive_rows(rows)
    states = {**dict.fromkeys(account.planned, "**missing**"), **dict.fromkeys(account.done, "published")}
    states.update(dict.fromkeys(account.later, "later: its kernels are still to be compiled"))
    missing = dict.fromkeys(gap.cell for gap in account.gaps)
    cells = [*missing, *(cell for cell in account.planned if cell not in missing)]
    lines = table(
        ("cell", "state", "size", "gates"),
        (
            [code(cell), states[cell], *((size_text(row.size), _gates(row)) if row else ("", ""))]
            for cell, row in ((cell, wheels.get(cell)) for cell in cells)
        ),
    )
    told = Section((account.markdown(),))
    listed = (
        Section(("## Cells", "", *lines[:2]), tuple(lines[2:]))
        if cells
        else Section(("Nothing to build: every cell selected is published.",))
    )
    return fitted([told, listed], SUMMARY_LIMIT)


def _gates(row: WheelRow) -> str:
    """What makes it not verified, how many passed, and the names of those that did not: ``7 passed; not run: gpu``."""
    names: dict[Status, list[str]] = {}
    for gate in row.gates:
        names.setdefault(gate.status, []).append(prose(gate.gate))
    passed = f"{len(names.get(Status.PASSED, ()))} passed"
    told = [f"**{prose(why)}**"] if (why := unverified(row)) else []
    return "; ".join([*told, passed, *(f"{status}: {', '.join(names[status])}" for status in _TOLD if status in names)])
