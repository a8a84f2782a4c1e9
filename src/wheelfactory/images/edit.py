"""The text of a matrix + what its images are to be -> the text with those tags and digests, and all else as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from wheelfactory.matrix.document import Place


@dataclass(frozen=True)
class Pin:
    """What an image of the matrix is to say of itself."""

    tag: str
    digest: str


@dataclass(frozen=True, order=True)
class _Edit:
    """Characters `start` to `end` of the text become `text`."""

    start: int
    end: int
    text: str


def edit_images(text: str, pins: Mapping[Place, Pin]) -> str:
    """The text of matrix.yaml with the images at these places pinned; a digest that is new stands below its tag.

    Whether the result is what was meant is for the caller to check: an anchor can make one text stand for two places.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    edits = {edit for place, pin in pins.items() for edit in _edits(text, _find(root, place), pin)}
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _find(node: yaml.Node, place: Place) -> yaml.MappingNode:
    for part in place:
        if isinstance(part, int):
            node = node.value[part]
        else:
            node = next(value for key, value in node.value if key.value == part)
    assert isinstance(node, yaml.MappingNode)
    return node


def _edits(text: str, image: yaml.MappingNode, pin: Pin) -> Iterator[_Edit]:
    keys = {key.value: key for key, _ in image.value}
    values = {key.value: value for key, value in image.value}
    for name, wanted in (("tag", pin.tag), ("digest", pin.digest)):
        if name in values:
            node = values[name]
            if node.value != wanted:
                quote = node.style or ""
                yield _Edit(node.start_mark.index, node.end_mark.index, f"{quote}{wanted}{quote}")
        elif image.flow_style:
            end = values["tag"].end_mark.index
            yield _Edit(end, end, f", {name}: {wanted}")
        else:
            yield _below(text, values["tag"].end_mark.index, f"{' ' * keys['tag'].start_mark.column}{name}: {wanted}")


def _below(text: str, index: int, line: str) -> _Edit:
    """A line below the one that a place is in, ended as that one is."""
    end = text.find("\n", index)
    if end < 0:
        return _Edit(len(text), len(text), f"\n{line}")
    start = end + 1
    return _Edit(start, start, line + ("\r\n" if text[end - 1] == "\r" else "\n"))
