"""matrix.yaml + PyTorch's indexes -> the same file with the torch releases that are new there, or exactly what it was.

Nothing is ever removed, and no fact is made up: what needs a person is suggested, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import yaml
from packaging.version import Version

from wheelfactory.core.errors import InputError
from wheelfactory.matrix.edit import (
    Edit,
    apply_edits,
    compose_yaml,
    find_node,
    insert_line_below,
    line_ending,
    write_matrix,
)
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.refresh.torch_index import TorchIndex, TorchReleases


def merge_versions(listed: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """A list of versions with new ones in it: each stands before the first listed one that is older, else at the end.

    What was listed keeps its order, also where that is not newest first.
    """
    order = list(listed)
    for version in new:
        older = (place for place, item in enumerate(order) if Version(item) < Version(version))
        order.insert(next(older, len(order)), version)
    return tuple(order)


def edit_torch(text: str, additions: Mapping[str, Sequence[str]]) -> str:
    """The text of matrix.yaml with torch releases added to the ``torch:`` list of ROCm entries (entry -> releases)."""
    root = compose_yaml(text)
    lists = ((find_node(root, ("rocm", entry, "torch")), new) for entry, new in additions.items())
    return apply_edits(text, [edit for node, new in lists for edit in _edits(text, node, new)])


def _edits(text: str, node: yaml.Node, new: Sequence[str]) -> Iterator[Edit]:
    """One insertion for each place, as edits at the same place have no order."""
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
    """What a person may do about a torch release on the index of a ROCm entry, and why it is not done."""

    rocm: str
    torch: str
    reason: str


@dataclass(frozen=True)
class TorchChanges:
    """What the indexes say of a matrix, and what becomes of it."""

    indexes: int
    additions: tuple[tuple[str, str], ...]
    """(entry of the matrix, torch release)"""
    suggestions: tuple[Suggestion, ...]
    cells: int
    """How many the matrix had."""
    new_cells: int
    """How many more it has with the additions."""

    @property
    def lines(self) -> Iterator[str]:
        """For the person who reviews the edit: each release that was added, then what only a person can do."""
        for entry, torch in self.additions:
            yield f"added      to ROCm {entry}: torch {torch}"
        for suggestion in self.suggestions:
            yield f"suggested  for ROCm {suggestion.rocm}: torch {suggestion.torch}: {suggestion.reason}"

    @property
    def summary(self) -> str:
        """All of it in one line."""
        return (
            f"{self.indexes} indexes: {len(self.additions)} torch releases added, "
            f"{len(self.suggestions)} suggestions; {self.new_cells} new cells besides {self.cells}"
        )


def refresh_torch(path: Path, index: TorchIndex) -> TorchChanges:
    """Ask the index of every ROCm entry of a matrix file, then write what is new, all at once.

    Raises `FactoryError` if any index fails, `InputError` for a bad matrix; the file is then byte for byte what it was.
    """
    matrix = load_matrix(path)
    content = path.read_bytes()
    offers = {entry: index.find_releases(entry, rocm) for entry, rocm in matrix.rocm.items()}
    findings, meant = compare_releases(matrix, offers)
    if findings.additions:
        by_entry = groupby(findings.additions, itemgetter(0))  # they come entry by entry
        text = edit_torch(content.decode(), {entry: [torch for _, torch in added] for entry, added in by_entry})
        write_matrix(path, content, text, meant, part="the torch lists")
    return findings


def compare_releases(matrix: Matrix, offers: Mapping[str, TorchReleases]) -> tuple[TorchChanges, Matrix]:
    """What the offers of the indexes say of a matrix, and the matrix with the additions. Pure.

    Raises `InputError` if the matrix as it is has no expansion.
    """
    cells = len(expand(matrix).cells)
    meant = matrix
    additions: list[tuple[str, str]] = []
    suggestions: list[Suggestion] = []
    for entry, offer in offers.items():
        for torch in _unlisted(matrix, entry, offer):
            meant, reason = _grown(meant, entry, torch, offer[Version(torch)])
            if reason:
                suggestions.append(Suggestion(entry, torch, reason))
            else:
                additions.append((entry, torch))
        suggestions += _about_listed(matrix, entry, offer)
        suggestions += _about_pythons(matrix, entry, offer)
    more = len(expand(meant).cells) - cells
    return TorchChanges(len(offers), tuple(additions), tuple(suggestions), cells, more), meant


def _unlisted(matrix: Matrix, entry: str, offer: TorchReleases) -> Iterator[str]:
    """Releases that the entry does not list, newest first: those with facts, and of the others the last of a minor.

    A patch release that another one on the same index replaced is of no use: labels have major and minor only.
    """
    listed = {Version(torch) for torch in matrix.rocm[entry].torch}
    last = {version.release[:2]: version for version in sorted(offer)}.values()
    for version in sorted(offer.keys() - listed, reverse=True):
        known = _known(matrix, version)
        if known or version in last:
            yield known or str(version)


def _known(matrix: Matrix, version: Version) -> str | None:
    """The release as the matrix writes it, if it has an entry under ``torch:``; 2.9 and 2.9.0 are the same."""
    return next((torch for torch in matrix.torch if Version(torch) == version), None)


def _grown(matrix: Matrix, entry: str, torch: str, pythons: frozenset[str]) -> tuple[Matrix, str]:
    """The matrix with a release in the list of an entry and "", or as it is and why that cannot be."""
    if torch not in matrix.torch:
        return matrix, f"no entry under torch: (it is there for {_named(pythons)})"
    missing = _wanted(matrix, torch) - pythons
    if missing:
        return matrix, f"not there for {_named(missing)}, which its entry under torch: has"
    rocm = matrix.rocm[entry]
    grown = rocm.model_copy(update={"torch": merge_versions(rocm.torch, [torch])})
    added = matrix.model_copy(update={"rocm": {**matrix.rocm, entry: grown}})
    try:
        expand(added)
    except InputError as error:
        return matrix, f"{error}; {error.hint}"
    return added, ""


def _about_listed(matrix: Matrix, entry: str, offer: TorchReleases) -> Iterator[Suggestion]:
    """Releases that the entry lists, and the index does not have at all, or not for a Python that is asked for."""
    for torch in matrix.rocm[entry].torch:
        pythons = offer.get(Version(torch))
        if pythons is None:
            yield Suggestion(entry, torch, "listed, but not on the index")
        elif missing := _wanted(matrix, torch) - pythons:
            yield Suggestion(entry, torch, f"listed, but not there for {_named(missing)}")


def _about_pythons(matrix: Matrix, entry: str, offer: TorchReleases) -> Iterator[Suggestion]:
    """Pythons that a known release is there for and its facts lack; not those older than any of the matrix."""
    oldest = min(map(Version, matrix.python))
    for version in sorted(offer, reverse=True):
        torch = _known(matrix, version)
        if torch is None:
            continue
        further = {python for python in offer[version] if Version(python) >= oldest} - {*matrix.torch[torch].python}
        if further:
            yield Suggestion(entry, torch, f"there for {_named(further)}, which its entry under torch: lacks")


def _wanted(matrix: Matrix, torch: str) -> frozenset[str]:
    """The Pythons that cells of a known release are made for."""
    return frozenset(matrix.python) & frozenset(matrix.torch[torch].python)


def _named(pythons: Iterable[str]) -> str:
    return f"Python {', '.join(sorted(pythons, key=Version, reverse=True))}"
