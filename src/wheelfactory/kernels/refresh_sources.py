"""Write the digest of each release's kernel sources into matrix.yaml, so that equal sources are compiled once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from wheelfactory.build.environments import clean_environ
from wheelfactory.core.errors import SourceError
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.edit import Edit, apply_edits, compose_yaml, find_node, line_ending, write_matrix
from wheelfactory.matrix.facts import FlashAttn
from wheelfactory.matrix.load import load_matrix

_KEY = "kernel-sources"


@dataclass(frozen=True)
class SourceChanges:
    """The digests that changed, by release, and the releases whose sources cannot be listed, with the reason."""

    changed: Mapping[str, str]
    skipped: Mapping[str, str]
    unchanged: int

    @property
    def lines(self) -> Iterator[str]:
        """Report lines for the reviewer."""
        yield from (f"written    {version}  {digest}" for version, digest in self.changed.items())
        yield from (f"skipped    {version}: {reason}" for version, reason in self.skipped.items())

    @property
    def summary(self) -> str:
        """The counts, on one line."""
        count = len(self.changed) + len(self.skipped) + self.unchanged
        return f"{count} releases with CK: {len(self.changed)} written, {self.unchanged} unchanged"


def refresh_kernel_sources(path: Path, cache: Path, environ: Mapping[str, str]) -> SourceChanges:
    """Compute the digest of every release that has CK kernels, then write all changes to a matrix file at once.

    A release whose sources cannot be fetched or listed keeps what it has. Raises `FactoryError` if the file cannot be
    written, `InputError` for an invalid matrix; the file is then unchanged.
    """
    matrix = load_matrix(path)
    content = path.read_bytes()
    releases = {version: release for version, release in matrix.flash_attn.items() if release.ck}
    found: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for version, release in releases.items():
        try:
            found[version] = list_sources(version, _with_digest(release, None), cache, clean_environ(environ)).digest
        except SourceError as error:
            skipped[version] = "; ".join(filter(None, str(error).splitlines()))
    changed = {version: digest for version, digest in found.items() if digest != releases[version].kernel_sources}
    if changed:
        text = content.decode()
        edited = {version: _with_digest(releases[version], digest) for version, digest in changed.items()}
        expected = matrix.model_copy(update={"flash_attn": {**matrix.flash_attn, **edited}})
        write_matrix(path, content, edit_kernel_sources(text, changed), expected, part=_KEY)
    return SourceChanges(changed, skipped, len(found) - len(changed))


def _with_digest(release: FlashAttn, digest: str | None) -> FlashAttn:
    return release.model_copy(update={"kernel_sources": digest})


def edit_kernel_sources(text: str, digests: Mapping[str, str]) -> str:
    """Write these digests, by release, into the text of matrix.yaml; a new one goes above ``python``."""
    root = compose_yaml(text)
    nodes = {version: find_node(root, ("flash-attn", version)) for version in digests}
    return apply_edits(text, [_edit(text, node, digests[version]) for version, node in nodes.items()])


def _edit(text: str, release: yaml.Node, digest: str) -> Edit:
    assert isinstance(release, yaml.MappingNode)
    values = {key.value: (key, value) for key, value in release.value}
    if _KEY in values:
        mark = values[_KEY][1]
        return Edit(mark.start_mark.index, mark.end_mark.index, digest)
    key = values["python"][0].start_mark
    between = ", " if release.flow_style else line_ending(text, key.index) + " " * key.column
    return Edit(key.index, key.index, f"{_KEY}: {digest}{between}")
