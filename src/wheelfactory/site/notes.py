"""Manifest rows before and after -> the notes of a release, in Markdown that fits GitHub's limit."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.install_lines import file_install_line, index_install_line
from wheelfactory.site.markdown import (
    MarkdownSection,
    code_block,
    code_span,
    count_text,
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
    group_by_index,
    newest_first_key,
    pythons_text,
    versions_text,
)
from wheelfactory.verify.result import GateResult, Status

BODY_LIMIT = 125_000
"""Characters that GitHub takes as the text of a release; its API refuses a longer one ("body is too long")."""

_REASONS = 3
"""Reasons for a gate that did not run that are shown; the others are counted."""


@dataclass(frozen=True)
class ReleaseChanges:
    """What a release brings: wheels that are new and can be installed, were yanked since, or ran on a GPU."""

    new: tuple[WheelRow, ...]
    yanked: tuple[WheelRow, ...]
    validated: tuple[WheelRow, ...]
    """Those that have other evidence than before."""
    total: int
    """Files of the manifest afterwards, dependencies and yanked ones included."""


def find_changes(before: Sequence[WheelRow], after: Sequence[WheelRow]) -> ReleaseChanges:
    """The difference of two manifests, by file name."""
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
    """The notes of the release that made `after` of `before`, at most `limit` characters.

    `site` is the address below which ``simple/`` is; without it each wheel is installed by its own address.
    `repository` is ``OWNER/REPO``, for the lines that check where a wheel comes from; None leaves them out.
    """
    found = find_changes(before, after)
    wheels = tuple(wheel for wheel in found.new if wheel.label)
    sections = [MarkdownSection((_headline(found),))]
    if wheels:
        sections += [_install(wheels, matrix, site)]
    if found.yanked:
        rows = tuple(f"- {code_span(wheel.filename)}: {escape(str(wheel.yanked))}" for wheel in found.yanked)
        sections += [MarkdownSection(("## Yanked", "", "Installers pass these over unless they are pinned.", ""), rows)]
    if found.validated:
        sections += [_validated(found.validated)]
    if wheels:
        sections += [_gpus(wheels), _gates(wheels)]
    sections += [_verify(repository)] if repository else []
    sections += [_files(found.new)] if found.new else []
    return fit_sections(sections, limit)


def _headline(found: ReleaseChanges) -> str:
    wheels = sum(wheel.label is not None for wheel in found.new)
    yanked = f", {len(found.yanked)} yanked" if found.yanked else ""
    validated = f", {len(found.validated)} with new evidence" if found.validated else ""
    return f"{count_text(wheels, 'new flash-attn wheel')}{yanked}{validated}; {count_text(found.total, 'file')} in all."


def _install(wheels: Sequence[WheelRow], matrix: Matrix, site: str | None) -> MarkdownSection:
    if site:
        told = "One index for each ROCm, torch and backend; install ROCm's torch first."
        groups = [(members, index_install_line(key, site)) for key, members in group_by_index(wheels).items()]
    else:
        download = "" if all(wheel.url for wheel in wheels) else " Download the wheel, then install it where it lies."
        told = f"Install ROCm's torch first.{download}"
        groups = [([wheel], file_install_line(wheel, matrix)) for wheel in wheels]
    rows = (
        [*axis_values(members[0]), versions_text(members), pythons_text(members), code_span(line)]
        for members, line in groups
    )
    header, rule, *lines = table(("ROCm", "torch", "backend", "flash-attn", "Python", "install"), rows)
    return MarkdownSection(("## Install", "", told, "", header, rule), tuple(lines))


def _validated(wheels: Iterable[WheelRow]) -> MarkdownSection:
    rows = (f"- {code_span(wheel.filename)}: {escape(line)}" for wheel in wheels for line in evidence_lines(wheel))
    return MarkdownSection(
        ("## Evidence", "", "What GPUs computed with these wheels, against float64.", ""), tuple(rows)
    )


def _gpus(wheels: Sequence[WheelRow]) -> MarkdownSection:
    counts = Counter(arch for wheel in wheels for arch in wheel.offload_archs)
    rows = ([code_span(arch), gpu_text(arch), f"{number} of {len(wheels)}"] for arch, number in sorted(counts.items()))
    return MarkdownSection(("## GPUs", "", *table(("arch", "GPUs", "new wheels for it"), rows)))


def _gates(wheels: Sequence[WheelRow]) -> MarkdownSection:
    """Each gate with what it said; a wheel that has no result of a gate is not counted for it."""
    results: dict[str, list[GateResult]] = {}
    for result in (result for wheel in wheels for result in wheel.gates):
        results.setdefault(result.gate, []).append(result)
    silent = sum(not wheel.gates for wheel in wheels)
    told = "What was checked before publishing. A gate that did not run says nothing about a wheel."
    more = ("", f"{count_text(silent, 'wheel')} without any recorded gate.") if silent else ()
    reasons = Counter(filter(None, map(unverified_reason, wheels)))
    told = " ".join([told, *(f"{count_text(number, 'wheel')} {why}." for why, number in reasons.items())])
    rows = (_gate_cells(gate, said) for gate, said in results.items())
    return MarkdownSection(("## Gates", "", told, "", *table(("gate", "passed", "failed", "not run"), rows), *more))


def _gate_cells(gate: str, results: Sequence[GateResult]) -> list[str]:
    counts = Counter(result.status for result in results)
    details = dict.fromkeys(one_line(result.detail) for result in results if result.status is Status.NOT_RUN)
    reasons = [escape(detail) for detail in details if detail]
    shown = [*reasons[:_REASONS], *([f"and {len(reasons) - _REASONS} more reasons"] if reasons[_REASONS:] else [])]
    not_run = f"{counts[Status.NOT_RUN]}" + (f" ({'; '.join(shown)})" if shown else "")
    return [escape(gate), str(counts[Status.PASSED]), str(counts[Status.FAILED]), not_run]


def _verify(repository: str) -> MarkdownSection:
    lines = [
        shlex.join(["gh", "attestation", "verify", "FILE", "--repo", repository]),
        shlex.join(["gh", "release", "verify-asset", "TAG", "FILE", "--repo", repository]),
    ]
    told = "Who built a file, and that the release was not changed since:"
    return MarkdownSection(("## Check what you downloaded", "", told, "", *code_block(lines)))


def _files(wheels: Iterable[WheelRow]) -> MarkdownSection:
    rows = (
        [code_span(wheel.filename), size_text(wheel.size), escape(wheel.glibc or "any"), code_span(wheel.sha256)]
        for wheel in wheels
    )
    header, rule, *lines = table(("file", "size", "glibc", "sha256"), rows)
    opened = ("## Files", "", "<details><summary>Names, sizes, digests</summary>", "", header, rule)
    return MarkdownSection(opened, tuple(lines), ("", "</details>"))
