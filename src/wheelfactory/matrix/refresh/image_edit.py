"""The text of a matrix + what its images are to be -> the text with those tags and digests, and all else as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from wheelfactory.matrix.document import Place
from wheelfactory.matrix.edit import Edit, compose, edited, find, line_below


@dataclass(frozen=True)
class Pin:
    """What an image of the matrix is to say of itself."""

    tag: str
    digest: str


def edit_images(text: str, pins: Mapping[Place, Pin]) -> str:
    """The text of matrix.yaml with the images at these places pinned; a digest that is new stands below its tag."""
    root = compose(text)
    return edited(text, [edit for place, pin in pins.items() for edit in _edits(text, find(root, place), pin)])


def _edits(text: str, image: yaml.Node, pin: Pin) -> Iterator[Edit]:
    assert isinstance(image, yaml.MappingNode)
    keys = {key.value: key for key, _ in image.value}
    values = {key.value: value for key, value in image.value}
    for name, wanted in (("tag", pin.tag), ("digest", pin.digest)):
        if name in values:
            node = values[name]
            if node.value != wanted:
                quote = node.style or ""
                yield Edit(node.start_mark.index, node.end_mark.index, f"{quote}{wanted}{quote}")
        elif image.flow_style:
            end = values["tag"].end_mark.index
            yield Edit(end, end, f", {name}: {wanted}")
        else:
            indent = " " * keys["tag"].start_mark.column
            yield line_below(text, values["tag"].end_mark.index, f"{indent}{name}: {wanted}")
