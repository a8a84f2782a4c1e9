"""Write digests into matrix.yaml: of each release's kernel sources, and of the proof of its filters.

    .venv/bin/python scripts/refresh_kernel_sources.py

Downloads the sources of releases that are not in the cache. Proves filters whose digest does not match: a build uses
filters only with the digest of the sources that they are proved for. On any error, changes nothing. See
docs/reference/matrix.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from filter_proof.proof import UnprovedError, prove_filters
from refresh.edit import (
    Edit,
    apply_edits,
    compose_yaml,
    find_node,
    line_ending,
    print_findings,
    run_chore,
    write_matrix,
)
from wheelfactory.build.environments import clean_environ
from wheelfactory.commands.options import add_shared, prepare_cache
from wheelfactory.core.errors import SourceError
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.facts import FlashAttn, Matrix
from wheelfactory.matrix.load import load_matrix


@dataclass(frozen=True)
class Digests:
    """What matrix.yaml states about the sources of a release."""

    kernel_sources: str | None
    proof: str | None = None
    """None for a release without filters, or whose filters are not proved."""

    @classmethod
    def stated(cls, release: FlashAttn) -> Digests:
        """Those of a release in the matrix."""
        return cls(release.kernel_sources, release.trim.proof if release.trim else None)


@dataclass(frozen=True)
class SourceChanges:
    """The digests that changed, by release, and what could not be computed, with the reason."""

    changed: Mapping[str, Digests]
    skipped: Mapping[str, str]
    unchanged: int

    @property
    def lines(self) -> Iterator[str]:
        """Report lines for the reviewer."""
        for version, digests in self.changed.items():
            yield f"written    {version}  {digests.kernel_sources}"
            if digests.proof:
                yield f"proved     {version}  {digests.proof}"
        yield from (f"skipped    {version}: {reason}" for version, reason in self.skipped.items())

    @property
    def summary(self) -> str:
        """The counts, on one line."""
        count = len(self.changed) + len(self.skipped) + self.unchanged
        return f"{count} releases with CK: {len(self.changed)} written, {self.unchanged} unchanged"


def refresh_kernel_sources(path: Path, cache: Path, environ: Mapping[str, str]) -> SourceChanges:
    """Compute the digests of every release that has CK kernels, then write all changes to a matrix file at once.

    A release whose sources cannot be listed, or whose filters are not proved, keeps what it has. Raises `FactoryError`
    if the file cannot be written, `InputError` for an invalid matrix; the file is then unchanged.
    """
    matrix, content = load_matrix(path), path.read_bytes()
    releases = {version: release for version, release in matrix.flash_attn.items() if release.ck}
    found: dict[str, Digests] = {}
    skipped: dict[str, str] = {}
    for version, release in releases.items():
        try:
            found[version] = find_digests(version, release, cache, clean_environ(environ))
        except (SourceError, UnprovedError) as error:
            skipped[version] = "; ".join(filter(None, str(error).splitlines()))
    changed = {version: digests for version, digests in found.items() if digests != Digests.stated(releases[version])}
    if changed:
        text = edit_digests(content.decode(), changed)
        write_matrix(path, content, text, _with_digests(matrix, changed), part="the digests")
    return SourceChanges(changed, skipped, len(found) - len(changed))


def find_digests(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> Digests:
    """Compute the digests of a release. Raises `UnprovedError`, and `SourceError` if its sources cannot be listed."""
    listed = list_sources(version, release.model_copy(update={"kernel_sources": None}), cache, environ)
    if listed.filtered or not release.trim:
        return Digests(listed.digest, Digests.stated(release).proof)
    return Digests(listed.digest, prove_filters(version, release, cache, environ))


def _with_digests(matrix: Matrix, changed: Mapping[str, Digests]) -> Matrix:
    """The matrix that the edited text must load as."""
    edited = {}
    for version, digests in changed.items():
        release = matrix.flash_attn[version]
        update: dict[str, object] = {"kernel_sources": digests.kernel_sources}
        if release.ck and release.trim:
            trim = release.trim.model_copy(update={"proof": digests.proof})
            update["ck"] = release.ck.model_copy(update={"trim": trim})
        edited[version] = release.model_copy(update=update)
    return matrix.model_copy(update={"flash_attn": {**matrix.flash_attn, **edited}})


def edit_digests(text: str, changed: Mapping[str, Digests]) -> str:
    """Write these digests, by release, into the text of matrix.yaml."""
    root, edits = compose_yaml(text), list[Edit]()
    for version, digests in changed.items():
        release = ("flash-attn", version)
        edits += _edit(text, find_node(root, release), "kernel-sources", digests.kernel_sources, above="python")
        if digests.proof:
            edits += _edit(text, find_node(root, (*release, "ck", "trim")), "proof", digests.proof, above="source")
    return apply_edits(text, edits)


def _edit(text: str, node: yaml.Node, name: str, digest: str | None, *, above: str) -> Iterable[Edit]:
    """Replace the value of a key, or add the key above another one."""
    assert isinstance(node, yaml.MappingNode)
    values = {key.value: (key, value) for key, value in node.value}
    if name in values:
        mark = values[name][1]
        yield Edit(mark.start_mark.index, mark.end_mark.index, str(digest))
    else:
        key = values[above][0].start_mark
        between = ", " if node.flow_style else line_ending(text, key.index) + " " * key.column
        yield Edit(key.index, key.index, f"{name}: {digest}{between}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the digests of kernel sources, and of proofs, in matrix.yaml.")
    add_shared(parser, "--matrix FILE", "--cache DIR")
    options = parser.parse_args(namespace=argparse.Namespace(environ=os.environ))
    cache = prepare_cache(options)
    return run_chore(lambda: print_findings(refresh_kernel_sources(options.matrix, cache, os.environ)))


if __name__ == "__main__":
    raise SystemExit(main())
