"""A run's account and the rows of its wheels -> its job summary: the verdict and what to do, then every cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wheelfactory.pipeline.account import Account
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.coverage import decisive_rows
from wheelfactory.site.markdown import Section, code, fitted, prose, size_text, table
from wheelfactory.verify.result import GateResult, Status

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
        ([code(cell), states[cell], *_wheel(wheels.get(cell))] for cell in cells),
    )
    told = Section((account.markdown(),))
    listed = (
        Section(("## Cells", "", *lines[:2]), tuple(lines[2:]))
        if cells
        else Section(("Nothing to build: every cell selected is published.",))
    )
    return fitted([told, listed], SUMMARY_LIMIT)


def _wheel(row: WheelRow | None) -> Iterator[str]:
    """Size and gates of a cell's wheel; empty where there is none."""
    yield size_text(row.size) if row else ""
    yield _gates(row.gates) if row else ""


def _gates(gates: Iterable[GateResult]) -> str:
    """How many passed, and the names of those that did not: ``7 passed; not run: gpu``."""
    names: dict[Status, list[str]] = {}
    for gate in gates:
        names.setdefault(gate.status, []).append(prose(gate.gate))
    passed = f"{len(names.get(Status.PASSED, ()))} passed"
    return "; ".join([passed, *(f"{status}: {', '.join(names[status])}" for status in _TOLD if status in names)])
