"""Update the images in matrix.yaml to the newest patch releases of a registry, and pin their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import yaml

from wheelfactory.core.errors import FactoryError
from wheelfactory.matrix.document import KeyPath
from wheelfactory.matrix.edit import Edit, apply_edits, compose_yaml, find_node, insert_line_below, write_matrix
from wheelfactory.matrix.facts import Image, Matrix, Rocm
from wheelfactory.matrix.image_tags import additional_tags, newest_patch, split_reference
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.refresh.registry import Registry


@dataclass(frozen=True)
class ImagePin:
    """The new tag and digest of an image."""

    tag: str
    digest: str


def edit_images(text: str, pins: Mapping[KeyPath, ImagePin]) -> str:
    """Edit the images at these key paths in the text of matrix.yaml; a new digest is inserted below its tag."""
    root = compose_yaml(text)
    return apply_edits(
        text, [edit for key_path, pin in pins.items() for edit in _pin_edits(text, find_node(root, key_path), pin)]
    )


def _pin_edits(text: str, image: yaml.Node, pin: ImagePin) -> Iterator[Edit]:
    assert isinstance(image, yaml.MappingNode)
    keys = {key.value: key for key, _ in image.value}
    values = {key.value: value for key, value in image.value}
    for name, value in (("tag", pin.tag), ("digest", pin.digest)):
        if name in values:
            node = values[name]
            if node.value != value:
                quote = node.style or ""
                yield Edit(node.start_mark.index, node.end_mark.index, f"{quote}{value}{quote}")
        elif image.flow_style:
            end = values["tag"].end_mark.index
            yield Edit(end, end, f", {name}: {value}")
        else:
            indent = " " * keys["tag"].start_mark.column
            yield insert_line_below(text, values["tag"].end_mark.index, f"{indent}{name}: {value}")


TagLister: TypeAlias = Callable[[str], Sequence[str]]
"""A function that lists the tags of a repository."""


@dataclass(frozen=True)
class ImageUpdate:
    """An image of the matrix with its key path and its new pin, which can equal the old one."""

    key_path: KeyPath
    image: Image
    pin: ImagePin

    @property
    def is_replaced(self) -> bool:
        """Whether the tag changes."""
        return self.pin.tag != self.image.tag

    @property
    def is_changed(self) -> bool:
        """Whether the tag or the digest changes."""
        return self.is_replaced or self.pin.digest != self.image.digest


@dataclass(frozen=True)
class ImageChanges:
    """The updates of all images of a matrix, and suggestions for new images of the same ROCm."""

    updates: tuple[ImageUpdate, ...]
    suggestions: tuple[tuple[str, str], ...]
    """Pairs of a ROCm entry and an image."""

    @property
    def lines(self) -> Iterator[str]:
        """Report lines for the reviewer: each changed image, then each suggested one."""
        for update in self.updates:
            if update.is_replaced:
                yield f"replaced   {update.image.tag}"
                yield f"  by       {update.pin.tag}  {update.pin.digest}"
                yield "  check    its source and disk, which still describe the old image"
            elif update.is_changed:
                was = f" (was {update.image.digest})" if update.image.digest else ""
                yield f"pinned     {update.image.tag}  {update.pin.digest}{was}"
        for entry, image in self.suggestions:
            yield f"suggested  for ROCm {entry}: {image}"

    @property
    def summary(self) -> str:
        """The counts, on one line."""
        replaced = sum(update.is_replaced for update in self.updates)
        pinned = sum(update.is_changed for update in self.updates) - replaced
        return (
            f"{len(self.updates)} images: {replaced} replaced by a newer patch release, {pinned} pinned, "
            f"{len(self.updates) - replaced - pinned} unchanged"
        )


def refresh_images(path: Path, registry: Registry) -> ImageChanges:
    """Look up every image of a matrix file, then write all changes at once.

    Raises `FactoryError` if any request fails or a tag is missing, `InputError` for an invalid matrix; the file is then
    unchanged.
    """
    matrix = load_matrix(path)
    content = path.read_bytes()
    changes = find_updates(matrix, registry)
    pins = {update.key_path: update.pin for update in changes.updates if update.is_changed}
    if pins:
        text = edit_images(content.decode(), pins)
        write_matrix(path, content, text, _with_pins(matrix, pins), part="the images")
    return changes


def find_updates(matrix: Matrix, registry: Registry) -> ImageChanges:
    """Look up every image in the registry. Raises `FactoryError`, with all tags that are missing there."""
    list_tags, find_digest = cache(registry.list_tags), cache(registry.find_digest)
    updates, missing = [], []
    for key_path, image, name in _newest(matrix, list_tags):
        digest = find_digest(*split_reference(name))
        if digest is None:
            missing.append(image.tag)
        else:
            updates.append(ImageUpdate(key_path, image, ImagePin(name, digest)))
    if missing:
        hint = "replace them by existing tags; nothing was changed"
        raise FactoryError("the registry does not have", ", ".join(dict.fromkeys(missing)), hint)
    return ImageChanges(tuple(updates), tuple(_suggestions(matrix, updates, list_tags)))


def _find_images(matrix: Matrix) -> Iterator[tuple[KeyPath, Image]]:
    for entry, rocm in matrix.rocm.items():
        for position, image in enumerate(rocm.images):
            yield ("rocm", entry, "images", position), image
        if rocm.slim:
            yield ("rocm", entry, "slim"), rocm.slim


def _newest(matrix: Matrix, list_tags: TagLister) -> Iterator[tuple[KeyPath, Image, str]]:
    """Yield each image with the name of its newest patch release, unless the entry already lists that name."""
    seen = {(key_path[1], image.tag) for key_path, image in _find_images(matrix)}
    for key_path, image in _find_images(matrix):
        entry = str(key_path[1])
        repository, tag = split_reference(image.tag)
        name = image.tag.removesuffix(tag) + newest_patch(tag, list_tags(repository), entry, matrix.rocm)
        if (entry, name) in seen:
            name = image.tag
        seen.add((entry, name))
        yield key_path, image, name


def _suggestions(matrix: Matrix, updates: Sequence[ImageUpdate], list_tags: TagLister) -> Iterator[tuple[str, str]]:
    """Find images of each entry's newest release that its list lacks, in the order of the matrix."""
    own: dict[tuple[str, str], list[str]] = {}
    for update in updates:
        if "images" in update.key_path:
            repository, tag = split_reference(update.pin.tag)
            own.setdefault((str(update.key_path[1]), repository), []).append(tag)
    for (entry, repository), tags in own.items():
        for tag in additional_tags(tags, list_tags(repository), entry, matrix.rocm):
            yield entry, f"{repository}:{tag}"


def _with_pins(matrix: Matrix, pins: Mapping[KeyPath, ImagePin]) -> Matrix:
    """The matrix that the edited text must load as."""

    def repin(key_path: KeyPath, image: Image) -> Image:
        pin = pins.get(key_path)
        return image.model_copy(update={"tag": pin.tag, "digest": pin.digest}) if pin else image

    def update_entry(entry: str, rocm: Rocm) -> Rocm:
        images = [repin(("rocm", entry, "images", position), image) for position, image in enumerate(rocm.images)]
        slim = repin(("rocm", entry, "slim"), rocm.slim) if rocm.slim else None
        return rocm.model_copy(update={"images": tuple(images), "slim": slim})

    return matrix.model_copy(update={"rocm": {entry: update_entry(entry, rocm) for entry, rocm in matrix.rocm.items()}})
