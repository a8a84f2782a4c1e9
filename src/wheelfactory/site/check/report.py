"""The results of a site check as text: every failure and every missing check first, one line each. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wheelfactory.core.wrap import count_text
from wheelfactory.verify.gates import is_refused
from wheelfactory.verify.result import GateResult, Status, result_lines


@dataclass(frozen=True)
class Checked:
    """A site or a sampled wheel, and the results of its checks."""

    name: str
    title: str
    """The name with details."""
    results: tuple[GateResult, ...]


def has_drift(checked: Sequence[Checked]) -> bool:
    """Whether any check failed."""
    return any(is_refused(one.results) for one in checked)


def report_lines(checked: Sequence[Checked]) -> Iterator[str]:
    """Report the checks of a site, which comes first in `checked`, and of its sampled wheels."""
    failures = [
        f"failed: {one.name}: {result.gate}: {str(finding).removeprefix(f'{one.name}: ')}"
        for one in checked
        for result in one.results
        for finding in result.findings
    ]
    not_run = [
        f"not run: {one.name}: {result.gate}: {result.detail}"
        for one in checked
        for result in one.results
        if result.status is Status.NOT_RUN
    ]
    site, *wheels = checked
    verdict = f"drift, {count_text(len(failures), 'failure')}" if failures else "no drift"
    yield f"{site.name}: {verdict}; {count_text(len(wheels), 'wheel')} in the sample"
    yield from failures
    yield from not_run
    if not wheels:
        yield "not run: installs: the site has no verified wheel of a cell in matrix.yaml"
    for one in checked:
        yield ""
        yield one.title
        yield from result_lines(one.results)
