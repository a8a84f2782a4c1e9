"""Write the notes of a release in Markdown, from the manifest rows before and after it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wheelfactory.core.published import build_key
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow, outdated_reason
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.coverage import page_runner_note
from wheelfactory.site.index import file_install_line, index_install_line
from wheelfactory.site.markdown import (
    MarkdownSection,
    code_block,
    code_span,
    escape,
    fit_sections,
    gpu_text,
    one_line,
    size_text,
    table,
)
from wheelfactory.site.wheel_text import (
    axis_values,
    evidence_lines,
    executed_lines,
    group_by_index,
    newest_first_key,
    pythons_text,
    versions_text,
)
from wheelfactory.verify.result import GateResult, Status

# GitHub's limit for the text of a release; its API refuses longer ones ("body is too long")
BODY_LIMIT = 125_000

# number of reasons shown for a gate that did not run; the others are counted
_REASONS = 3


@dataclass(frozen=True)
class ReleaseChanges:
    """The changes of a release: wheels that are new, newly yanked, or have new GPU evidence."""

    new: tuple[WheelRow, ...]
    yanked: tuple[WheelRow, ...]
    validated: tuple[WheelRow, ...]
    """Wheels whose evidence changed."""
    total: int
    """Files in the manifest afterwards, dependencies and yanked files included."""


def find_changes(before: Sequence[WheelRow], after: Sequence[WheelRow]) -> ReleaseChanges:
    """Compare two manifests by file name."""
    evidence = {old.filename: old.evidence for old in before}
    yanked = {old.filename for old in before if old.yanked is not None}
    ordered = sorted(after, key=newest_first_key)
    return ReleaseChanges(
        tuple(now for now in ordered if now.filename not in evidence and now.yanked is None),
        tuple(now for now in ordered if now.yanked is not None and now.filename not in yanked),
        tuple(now for now in ordered if now.evidence and now.evidence != evidence.get(now.filename)),
        len(after),
    )


def release_notes(
    before: Sequence[WheelRow],
    after: Sequence[WheelRow],
    *,
    matrix: Matrix,
    site: str | None,
    repository: str | None,
    limit: int = BODY_LIMIT,
) -> str:
    """Write the notes of the release that changed the rows `before` to `after`, in at most `limit` characters.

    `site` is the address above ``simple/``; without it, each wheel has an install command with its own address.
    `repository` is ``OWNER/REPO`` for the commands that verify a download; None omits them.
    """
    found = find_changes(before, after)
    wheels = tuple(wheel for wheel in found.new if wheel.label)
    sections = [MarkdownSection((_headline(found),))]
    if note := page_runner_note(matrix, after):
        sections += [MarkdownSection((escape(note),))]
    if wheels:
        sections += [_install(wheels, after, matrix, site)]
    if replaced := tuple(_replaced(found.new, before, matrix)):
        sections += [MarkdownSection(("## Replaced", "", "Installers prefer the new wheels.", ""), replaced)]
    if found.yanked:
        rows = tuple(f"- {code_span(wheel.filename)}: {escape(str(wheel.yanked))}" for wheel in found.yanked)
        sections += [MarkdownSection(("## Yanked", "", "Installers skip these unless they are pinned.", ""), rows)]
    if found.validated:
        sections += [_validated(found.validated)]
    if wheels:
        sections += [_gpus(wheels), _gates(wheels)]
    sections += [_verify(repository)] if repository else []
    sections += [_files(found.new)] if found.new else []
    return fit_sections(sections, limit)


def _replaced(new: Iterable[WheelRow], before: Iterable[WheelRow], matrix: Matrix) -> Iterator[str]:
    """Name the wheel that each new one comes after by its build tag, and what is wrong with it."""
    last = {row.cell: row for row in sorted(before, key=lambda row: build_key(row.filename)) if row.cell}
    for wheel in new:
        old = last.get(str(wheel.cell))
        if old and build_key(old.filename) < build_key(wheel.filename):
            why = old.yanked or outdated_reason(old, matrix)
            reason = f": {escape(why)}" if why else ""
            yield f"- {code_span(wheel.filename)} replaces {code_span(old.filename)}{reason}"


def _headline(found: ReleaseChanges) -> str:
    wheels = sum(wheel.label is not None for wheel in found.new)
    yanked = f", {len(found.yanked)} yanked" if found.yanked else ""
    validated = f", {len(found.validated)} with new evidence" if found.validated else ""
    return f"{count_text(wheels, 'new flash-attn wheel')}{yanked}{validated}; {count_text(found.total, 'file')} in all."


def _install(
    wheels: Sequence[WheelRow], published: Iterable[WheelRow], matrix: Matrix, site: str | None
) -> MarkdownSection:
    if site:
        intro = "One index for each ROCm, torch and backend. Install torch for ROCm first."
        groups = [(members, index_install_line(key, site)) for key, members in group_by_index(wheels).items()]
    else:
        download = "" if all(wheel.url for wheel in wheels) else " Download the wheel, then install it from its folder."
        intro = f"Install torch for ROCm first.{download}"
        groups = [([wheel], file_install_line(wheel, matrix, published)) for wheel in wheels]
    rows = ([*axis_values(own[0]), versions_text(own), pythons_text(own), code_span(line)] for own, line in groups)
    header, rule, *lines = table(("ROCm", "torch", "backend", "flash-attn", "Python", "install"), rows)
    return MarkdownSection(("## Install", "", intro, "", header, rule), tuple(lines))


def _validated(wheels: Iterable[WheelRow]) -> MarkdownSection:
    rows = (f"- {code_span(wheel.filename)}: {escape(line)}" for wheel in wheels for line in evidence_lines(wheel))
    head = ("## Evidence", "", "Results of these wheels on GPUs, compared with float64.", "")
    return MarkdownSection(head, tuple(rows))


def _gpus(wheels: Sequence[WheelRow]) -> MarkdownSection:
    counts = Counter(arch for wheel in wheels for arch in wheel.offload_archs)
    rows = ([code_span(arch), gpu_text(arch), f"{number} of {len(wheels)}"] for arch, number in sorted(counts.items()))
    return MarkdownSection(("## GPUs", "", *table(("arch", "GPUs", "new wheels"), rows)))


def _gates(wheels: Sequence[WheelRow]) -> MarkdownSection:
    """The results of each gate. A wheel without a result is not counted."""
    results: dict[str, list[GateResult]] = {}
    for result in (result for wheel in wheels for result in wheel.gates):
        results.setdefault(result.gate, []).append(result)
    silent = sum(not wheel.gates for wheel in wheels)
    intro = "Checks before publishing. A gate that did not run is no evidence for or against a wheel."
    more = ("", f"{count_text(silent, 'wheel')} without any recorded gate.") if silent else ()
    reasons = Counter(filter(None, map(unverified_reason, wheels)))
    intro = " ".join([intro, *(f"{count_text(number, 'wheel')} {why}." for why, number in reasons.items())])
    rows = (_gate_cells(gate, found) for gate, found in results.items())
    header = ("gate", "passed", "failed", "not run")
    executed = Counter(line for wheel in wheels for line in executed_lines(wheel))
    lines = [f"- {escape(line)}: {count_text(number, 'wheel')}" for line, number in executed.items()]
    return MarkdownSection(("## Gates", "", intro, "", *table(header, rows), *more, "", *lines))


def _gate_cells(gate: str, results: Sequence[GateResult]) -> list[str]:
    counts = Counter(result.status for result in results)
    details = dict.fromkeys(one_line(result.detail) for result in results if result.status is Status.NOT_RUN)
    reasons = [escape(detail) for detail in details if detail]
    shown = [*reasons[:_REASONS], *([f"and {len(reasons) - _REASONS} more reasons"] if reasons[_REASONS:] else [])]
    not_run = f"{counts[Status.NOT_RUN]}" + (f" ({'; '.join(shown)})" if shown else "")
    return [escape(gate), str(counts[Status.PASSED]), str(counts[Status.FAILED]), not_run]


def _verify(repository: str) -> MarkdownSection:
    lines = [
        shlex.join(["wheelfactory", "verify", "--from", f"github:{repository}", "FILE"]),
        shlex.join(["gh", "attestation", "verify", "FILE", "--repo", repository]),
        shlex.join(["gh", "release", "verify-asset", "TAG", "FILE", "--repo", repository]),
    ]
    intro = "Verify who built a file, and that the release did not change since:"
    return MarkdownSection(("## Verify your download", "", intro, "", *code_block(lines)))


def _files(wheels: Iterable[WheelRow]) -> MarkdownSection:
    rows = (
        [code_span(wheel.filename), size_text(wheel.size), escape(wheel.glibc or "any"), code_span(wheel.sha256)]
        for wheel in wheels
    )
    header, rule, *lines = table(("file", "size", "glibc", "sha256"), rows)
    opened = ("## Files", "", "<details><summary>Names, sizes, digests</summary>", "", header, rule)
    return MarkdownSection(opened, tuple(lines), ("", "</details>"))
