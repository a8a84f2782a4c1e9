"""Update the images in matrix.yaml to the newest patch releases of a registry, and pin their digests."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import yaml

from refresh.edit import Edit, apply_edits, compose_yaml, find_node, insert_line_below, write_matrix
from refresh.registry import Registry
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.document import KeyPath
from wheelfactory.matrix.facts import Matrix, Rocm
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.origins import Image, ImageTag, parse_tag

# an image on Docker Hub. The name of another registry has a dot or a port in its first part
_REFERENCE = re.compile(
    "(?:docker[.]io/)?(?P<repository>[a-z0-9_-]+/[a-z0-9._-]+):(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})"
)


def split_reference(image: str) -> tuple[str, str]:
    """Split ``owner/name:tag`` at the colon. Raises `InputError` for an image that is not on Docker Hub."""
    found = _REFERENCE.fullmatch(image)
    if not found:
        raise InputError("not an image of Docker Hub", image, "write it as owner/name:tag")
    return found["repository"], found["tag"]


def find_entry(tag: ImageTag, entries: Collection[str]) -> str:
    """Find the entry of a tag in the matrix: the entry of its patch release if there is one, else of its minor."""
    release, minor = (".".join(map(str, tag.rocm[:count])) for count in (3, 2))
    return release if release in entries else minor


def newest_patch(tag: str, listed: Iterable[str], entry: str, entries: Collection[str]) -> str:
    """Find the tag of the newest patch release that can replace `tag`; `tag` itself if there is none.

    Distribution, Python, torch and the matrix entry stay: if 6.2.4 has an entry, no image of 6.2 becomes one of 6.2.4.
    """
    own = parse_tag(tag)
    if own is None:
        return tag
    newer = [other for other in _parsed(listed, entry, entries) if other.kind == own.kind and other.rocm > own.rocm]
    return max(newer, key=lambda other: (other.rocm, other.text)).text if newer else tag


def additional_tags(tags: Collection[str], listed: Iterable[str], entry: str, entries: Collection[str]) -> list[str]:
    """Find tags of the entry's newest release, or a newer one, with a distribution, Python or torch new to `tags`."""
    own = [parsed for tag in tags if (parsed := parse_tag(tag))]
    if not own:
        return []
    newest, kinds = max(tag.rocm for tag in own), {tag.kind for tag in own}
    found = [tag for tag in _parsed(listed, entry, entries) if tag.rocm >= newest and tag.kind not in kinds]
    return [tag.text for tag in sorted(found, key=lambda tag: (tag.rocm, tag.text))]


def _parsed(listed: Iterable[str], entry: str, entries: Collection[str]) -> list[ImageTag]:
    parsed = (parse_tag(text) for text in listed)
    return [tag for tag in parsed if tag and find_entry(tag, entries) == entry]


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
    missing: tuple[str, ...] = ()
    """Tags that the registry does not have."""

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
        yield from (f"suggested  another image for {tag}, which the registry does not have" for tag in self.missing)

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

    A tag that is missing is reported, and stays. Raises `FactoryError` if a request fails, `InputError` for an invalid
    matrix; the file is then unchanged.
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
    """Look up every image in the registry. Raises `FactoryError` if a request fails."""
    list_tags, find_digest = cache(registry.list_tags), cache(registry.find_digest)
    updates, missing = [], []
    for key_path, image, name in _newest(matrix, list_tags):
        digest = find_digest(*split_reference(name))
        if digest is None:
            missing.append(image.tag)
        else:
            updates.append(ImageUpdate(key_path, image, ImagePin(name, digest)))
    suggestions = tuple(_suggestions(matrix, updates, list_tags))
    return ImageChanges(tuple(updates), suggestions, tuple(dict.fromkeys(missing)))


def _find_images(matrix: Matrix) -> Iterator[tuple[KeyPath, Image]]:
    """Yield the images of Docker Hub; an image of another registry, such as a maintainer's own, stays as it is."""
    for entry, rocm in matrix.rocm.items():
        images = [(("rocm", entry, "images", position), image) for position, image in enumerate(rocm.images)]
        slim = [(("rocm", entry, "slim"), rocm.slim)] if rocm.slim else []
        yield from (found for found in (*images, *slim) if _REFERENCE.fullmatch(found[1].tag))


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
