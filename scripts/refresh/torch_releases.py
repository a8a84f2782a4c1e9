"""Add the new torch releases on PyTorch's indexes to matrix.yaml.

Nothing is removed and no fact is guessed: a change that needs a person becomes a suggestion with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import yaml
from packaging.version import Version

from refresh.edit import Edit, apply_edits, compose_yaml, find_node, insert_line_below, line_ending, write_matrix
from refresh.torch_index import TorchIndex, TorchReleases
from wheelfactory.core.errors import FactoryError, InputError
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix


def merge_versions(listed: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Insert each new version before the first older one, else at the end; the listed ones keep their order."""
    order = list(listed)
    for version in new:
        older = (position for position, item in enumerate(order) if Version(item) < Version(version))
        order.insert(next(older, len(order)), version)
    return tuple(order)


def edit_torch(text: str, additions: Mapping[str, Sequence[str]]) -> str:
    """Add torch releases to the ``torch:`` lists of ROCm entries in the text of matrix.yaml (entry -> releases)."""
    root = compose_yaml(text)
    lists = ((find_node(root, ("rocm", entry, "torch")), new) for entry, new in additions.items())
    return apply_edits(text, [edit for node, new in lists for edit in _insertions(text, node, new)])


def _insertions(text: str, node: yaml.Node, new: Sequence[str]) -> Iterator[Edit]:
    """Yield one insertion for each position."""
    # several edits at one position would have no order
    assert isinstance(node, yaml.SequenceNode)
    items = {item.value: item for item in node.value}
    order = merge_versions(list(items), new)
    indent, waiting = " " * node.start_mark.column, list[str]()
    for version in order:
        if version not in items:
            waiting.append(f"'{version}'")
        elif waiting:
            start = items[version].start_mark.index
            if node.flow_style:
                yield Edit(start, start, "".join(f"{new}, " for new in waiting))
            else:
                dash, following = text.rindex("-", 0, start), line_ending(text, start) + indent
                yield Edit(dash, dash, "".join(f"- {new}{following}" for new in waiting))
            waiting = []
    end = node.value[-1].end_mark.index
    if waiting and node.flow_style:
        yield Edit(end, end, "".join(f", {new}" for new in waiting))
    elif waiting:
        between = line_ending(text, end) + indent
        yield insert_line_below(text, end, indent + between.join(f"- {new}" for new in waiting))


@dataclass(frozen=True)
class Suggestion:
    """A torch release of a ROCm entry that needs a person, and why."""

    rocm: str
    torch: str
    reason: str


@dataclass(frozen=True)
class TorchChanges:
    """The additions to a matrix, and suggestions for a person."""

    indexes: int
    additions: tuple[tuple[str, str], ...]
    """Pairs of a ROCm entry and a torch release."""
    suggestions: tuple[Suggestion, ...]
    cells: int
    """The number of cells before."""
    new_cells: int
    """The number of cells that the additions bring."""
    failures: tuple[str, ...] = ()
    """The indexes that could not be read, with the reason; the others count."""

    @property
    def lines(self) -> Iterator[str]:
        """Report lines for the reviewer: each addition, then each suggestion."""
        for entry, torch in self.additions:
            yield f"added      to ROCm {entry}: torch {torch}"
        for suggestion in self.suggestions:
            yield f"suggested  for ROCm {suggestion.rocm}: torch {suggestion.torch}: {suggestion.reason}"
        yield from (f"failed     {failure}" for failure in self.failures)

    @property
    def summary(self) -> str:
        """The counts, on one line."""
        return (
            f"{self.indexes} indexes: {len(self.additions)} torch releases added, "
            f"{len(self.suggestions)} suggestions; {self.new_cells} new cells besides {self.cells}"
        )


def refresh_torch(path: Path, index: TorchIndex) -> TorchChanges:
    """Read the index of every ROCm entry of a matrix file, then write all additions at once.

    An index that fails is reported, and its entry stays. Raises `FactoryError` if the file cannot be written,
    `InputError` for an invalid matrix; the file is then unchanged.
    """
    matrix = load_matrix(path)
    content = path.read_bytes()
    published: dict[str, TorchReleases] = {}
    failures: list[str] = []
    for entry, rocm in matrix.rocm.items():
        try:
            published[entry] = index.find_releases(entry, rocm)
        except FactoryError as error:
            failures.append(str(error))
    changes, expected = compare_releases(matrix, published)
    changes = replace(changes, failures=tuple(failures))
    if changes.additions:
        by_entry = groupby(changes.additions, itemgetter(0))  # sorted by entry
        text = edit_torch(content.decode(), {entry: [torch for _, torch in added] for entry, added in by_entry})
        write_matrix(path, content, text, expected, part="the torch lists")
    return changes


def compare_releases(matrix: Matrix, published: Mapping[str, TorchReleases]) -> tuple[TorchChanges, Matrix]:
    """Compare the releases on the indexes with a matrix; return the changes, and the matrix with the additions.

    Raises `InputError` if the matrix cannot be expanded.
    """
    cells = len(expand(matrix).cells)
    grown = matrix
    additions: list[tuple[str, str]] = []
    suggestions: list[Suggestion] = []
    for entry, releases in published.items():
        for torch in _unlisted(matrix, entry, releases):
            grown, reason = _add_release(grown, entry, torch, releases[Version(torch)])
            if reason:
                suggestions.append(Suggestion(entry, torch, reason))
            else:
                additions.append((entry, torch))
        suggestions += _suggest_for_listed(matrix, entry, releases)
        suggestions += _suggest_pythons(matrix, entry, releases)
    more = len(expand(grown).cells) - cells
    return TorchChanges(len(published), tuple(additions), tuple(suggestions), cells, more), grown


def _unlisted(matrix: Matrix, entry: str, releases: TorchReleases) -> Iterator[str]:
    """Find releases that the entry does not list, newest first: with facts, or the last patch release of a minor."""
    listed = {Version(torch) for torch in matrix.rocm[entry].torch}
    # labels have only major and minor, so that an older patch release is of no use
    last = {version.release[:2]: version for version in sorted(releases)}.values()
    for version in sorted(releases.keys() - listed, reverse=True):
        known = _known(matrix, version)
        if known or version in last:
            yield known or str(version)


def _known(matrix: Matrix, version: Version) -> str | None:
    """Find the spelling of a release in the matrix, which can be 2.9 for 2.9.0; None if it has no entry."""
    return next((torch for torch in matrix.torch if Version(torch) == version), None)


def _add_release(matrix: Matrix, entry: str, torch: str, pythons: frozenset[str]) -> tuple[Matrix, str]:
    """Add a release to an entry. Return the new matrix and "", or the same matrix and why it cannot be added."""
    if torch not in matrix.torch:
        return matrix, f"no entry under torch: (the index has {_format_pythons(pythons)})"
    missing = _required_pythons(matrix, torch) - pythons
    if missing:
        return matrix, f"the index lacks {_format_pythons(missing)}, which its entry under torch: has"
    rocm = matrix.rocm[entry]
    extended = rocm.model_copy(update={"torch": merge_versions(rocm.torch, [torch])})
    added = matrix.model_copy(update={"rocm": {**matrix.rocm, entry: extended}})
    try:
        expand(added)
    except InputError as error:
        return matrix, f"{error}; {error.hint}"
    return added, ""


def _suggest_for_listed(matrix: Matrix, entry: str, releases: TorchReleases) -> Iterator[Suggestion]:
    """Report listed releases that the index lacks, or lacks for a Python of the matrix."""
    for torch in matrix.rocm[entry].torch:
        pythons = releases.get(Version(torch))
        if pythons is None:
            yield Suggestion(entry, torch, "listed, but not on the index")
        elif missing := _required_pythons(matrix, torch) - pythons:
            yield Suggestion(entry, torch, f"listed, but the index lacks {_format_pythons(missing)}")


def _suggest_pythons(matrix: Matrix, entry: str, releases: TorchReleases) -> Iterator[Suggestion]:
    """Report Pythons that the index has and the facts of a release lack, except those older than the matrix."""
    oldest = min(map(Version, matrix.python))
    for version in sorted(releases, reverse=True):
        torch = _known(matrix, version)
        if torch is None:
            continue
        further = {python for python in releases[version] if Version(python) >= oldest} - {*matrix.torch[torch].python}
        if further:
            yield Suggestion(
                entry, torch, f"the index has {_format_pythons(further)}, which its entry under torch: lacks"
            )


def _required_pythons(matrix: Matrix, torch: str) -> frozenset[str]:
    """The Pythons of the cells of a release."""
    return frozenset(matrix.python) & frozenset(matrix.torch[torch].python)


def _format_pythons(pythons: Iterable[str]) -> str:
    return f"Python {', '.join(sorted(pythons, key=Version, reverse=True))}"
