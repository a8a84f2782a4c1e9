"""The text of a matrix + torch releases that ROCm entries are to list too -> the text with those in, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import yaml
from packaging.version import Version

from wheelfactory.matrix.edit import Edit, compose, edited, find, line_below, line_end


def merged(listed: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
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
    root = compose(text)
    lists = ((find(root, ("rocm", entry, "torch")), new) for entry, new in additions.items())
    return edited(text, [edit for node, new in lists for edit in _edits(text, node, new)])


def _edits(text: str, node: yaml.Node, new: Sequence[str]) -> Iterator[Edit]:
    """One insertion for each place, as edits at the same place have no order."""
    assert isinstance(node, yaml.SequenceNode)
    items = {item.value: item for item in node.value}
    order = merged(list(items), new)
    waiting: list[str] = []
    for version in order:
        if version not in items:
            waiting.append(f"'{version}'")
        elif waiting:
            yield _above(text, node, items[version], waiting)
            waiting = []
    if waiting:
        yield _at_the_end(text, node, node.value[-1], waiting)


def _above(text: str, node: yaml.SequenceNode, item: yaml.Node, new: Sequence[str]) -> Edit:
    start = item.start_mark.index
    if node.flow_style:
        return Edit(start, start, "".join(f"{version}, " for version in new))
    dash = text.rindex("-", 0, start)
    following = line_end(text, start) + " " * node.start_mark.column
    return Edit(dash, dash, "".join(f"- {version}{following}" for version in new))


def _at_the_end(text: str, node: yaml.SequenceNode, last: yaml.Node, new: Sequence[str]) -> Edit:
    end = last.end_mark.index
    if node.flow_style:
        return Edit(end, end, "".join(f", {version}" for version in new))
    between = line_end(text, end) + " " * node.start_mark.column
    return line_below(text, end, " " * node.start_mark.column + between.join(f"- {version}" for version in new))
