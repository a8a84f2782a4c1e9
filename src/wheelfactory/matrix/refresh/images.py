"""matrix.yaml + a registry -> the same file with newer patch releases and pinned digests, or exactly what it was."""

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
    """What an image of the matrix is to say of itself."""

    tag: str
    digest: str


def edit_images(text: str, pins: Mapping[KeyPath, ImagePin]) -> str:
    """The text of matrix.yaml with the images at these places pinned; a digest that is new stands below its tag."""
    root = compose_yaml(text)
    return apply_edits(
        text, [edit for place, pin in pins.items() for edit in _edits(text, find_node(root, place), pin)]
    )


def _edits(text: str, image: yaml.Node, pin: ImagePin) -> Iterator[Edit]:
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
            yield insert_line_below(text, values["tag"].end_mark.index, f"{indent}{name}: {wanted}")


Listed: TypeAlias = Callable[[str], Sequence[str]]
"""The tags of a repository."""


@dataclass(frozen=True)
class ImageUpdate:
    """An image of the matrix, where it stands, and what it is to be."""

    place: KeyPath
    image: Image
    pin: ImagePin

    @property
    def moved(self) -> bool:
        """Whether another tag takes its place."""
        return self.pin.tag != self.image.tag

    @property
    def changed(self) -> bool:
        """Whether anything of it changes."""
        return self.moved or self.pin.digest != self.image.digest


@dataclass(frozen=True)
class ImageChanges:
    """What a registry says of the images of a matrix, and images of the same ROCm that the matrix lacks."""

    renewals: tuple[ImageUpdate, ...]
    suggestions: tuple[tuple[str, str], ...]
    """(entry of the matrix, image)"""

    @property
    def lines(self) -> Iterator[str]:
        """For the person who reviews the edit: each image that changed, then each that could be added."""
        for renewal in self.renewals:
            if renewal.moved:
                yield f"replaced   {renewal.image.tag}"
                yield f"  by       {renewal.pin.tag}  {renewal.pin.digest}"
                yield "  check    its source and disk, which speak of the old one"
            elif renewal.changed:
                was = f" (was {renewal.image.digest})" if renewal.image.digest else ""
                yield f"pinned     {renewal.image.tag}  {renewal.pin.digest}{was}"
        for entry, image in self.suggestions:
            yield f"suggested  for ROCm {entry}: {image}"

    @property
    def summary(self) -> str:
        """All of it in one line."""
        moved = sum(renewal.moved for renewal in self.renewals)
        pinned = sum(renewal.changed for renewal in self.renewals) - moved
        return (
            f"{len(self.renewals)} images: {moved} replaced by a newer patch release, {pinned} pinned, "
            f"{len(self.renewals) - moved - pinned} as they were"
        )


def refresh_images(path: Path, registry: Registry) -> ImageChanges:
    """Ask for every image of a matrix file, then write what changed, all at once.

    Raises `FactoryError` if any request fails or a tag is gone, `InputError` for a bad matrix; the file is then
    byte for byte what it was.
    """
    matrix = load_matrix(path)
    content = path.read_bytes()
    findings = find_updates(matrix, registry)
    pins = {renewal.place: renewal.pin for renewal in findings.renewals if renewal.changed}
    if pins:
        text = edit_images(content.decode(), pins)
        write_matrix(path, content, text, _renewed(matrix, pins), part="the images")
    return findings


def find_updates(matrix: Matrix, registry: Registry) -> ImageChanges:
    """What the registry says of every image. Raises `FactoryError`; one that names all tags it does not have."""
    listed, digest = cache(registry.tags), cache(registry.digest)
    renewals, gone = [], []
    for place, image, name in _newest(matrix, listed):
        found = digest(*split_reference(name))
        if found is None:
            gone.append(image.tag)
        else:
            renewals.append(ImageUpdate(place, image, ImagePin(name, found)))
    if gone:
        hint = "find out why, and write tags that exist; nothing was changed"
        raise FactoryError("the registry does not have", ", ".join(dict.fromkeys(gone)), hint)
    return ImageChanges(tuple(renewals), tuple(_suggestions(matrix, renewals, listed)))


def _images(matrix: Matrix) -> Iterator[tuple[KeyPath, Image]]:
    for entry, rocm in matrix.rocm.items():
        for position, image in enumerate(rocm.images):
            yield ("rocm", entry, "images", position), image
        if rocm.slim:
            yield ("rocm", entry, "slim"), rocm.slim


def _newest(matrix: Matrix, listed: Listed) -> Iterator[tuple[KeyPath, Image, str]]:
    """Each image with that of the newest patch release that takes its place; no entry lists one twice for that."""
    taken = {(place[1], image.tag) for place, image in _images(matrix)}
    for place, image in _images(matrix):
        entry = str(place[1])
        repository, tag = split_reference(image.tag)
        name = image.tag.removesuffix(tag) + newest_patch(tag, listed(repository), entry, matrix.rocm)
        if (entry, name) in taken:
            name = image.tag
        taken.add((entry, name))
        yield place, image, name


def _suggestions(matrix: Matrix, renewals: Sequence[ImageUpdate], listed: Listed) -> Iterator[tuple[str, str]]:
    """Images of an entry's newest release that would be new to its list, in the order of the matrix."""
    own: dict[tuple[str, str], list[str]] = {}
    for renewal in renewals:
        if "images" in renewal.place:
            repository, tag = split_reference(renewal.pin.tag)
            own.setdefault((str(renewal.place[1]), repository), []).append(tag)
    for (entry, repository), tags in own.items():
        for tag in additional_tags(tags, listed(repository), entry, matrix.rocm):
            yield entry, f"{repository}:{tag}"


def _renewed(matrix: Matrix, pins: Mapping[KeyPath, ImagePin]) -> Matrix:
    """The matrix as it is meant to be when the text is edited."""

    def renew(place: KeyPath, image: Image) -> Image:
        pin = pins.get(place)
        return image.model_copy(update={"tag": pin.tag, "digest": pin.digest}) if pin else image

    def of(entry: str, rocm: Rocm) -> Rocm:
        images = [renew(("rocm", entry, "images", position), image) for position, image in enumerate(rocm.images)]
        slim = renew(("rocm", entry, "slim"), rocm.slim) if rocm.slim else None
        return rocm.model_copy(update={"images": tuple(images), "slim": slim})

    return matrix.model_copy(update={"rocm": {entry: of(entry, rocm) for entry, rocm in matrix.rocm.items()}})
