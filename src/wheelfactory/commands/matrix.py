"""`wheelfactory matrix`: the cells to build as a job matrix, or the tables of what is supported."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from packaging.version import Version

from wheelfactory.commands.options import add_option, add_shared, print_messages, print_rendered, print_results
from wheelfactory.core.cell import Backend, Cell, name_flash_attn
from wheelfactory.core.errors import DONE
from wheelfactory.core.gpus import arch_sort_key
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.matrix.expand import (
    GITHUB_MATRIX_LIMIT,
    Expansion,
    expand,
    explain_selection,
    github_matrix,
    select_cells,
    unpublished_cells,
)
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import available_cells, read_manifest
from wheelfactory.site.markdown import gpu_text, table

_NONE = "no"


def supported_tables(matrix: Matrix, expansion: Expansion) -> list[str]:
    """The torch and Python versions of every ROCm, AMD's own torch too, and the ROCm versions of every GPU by backend.

    A ROCm version supports a GPU if any flash-attn release has a cell for it. Previews are named where no
    release does, and their commits below.
    """
    commits = dict.fromkeys(name_flash_attn(cell.flash_attn) for cell in expansion.cells if cell.commit)
    previews = ["", f"Preview: flash-attn {', '.join(commits)}, in indexes of its own."] if commits else []
    return [*_versions(matrix, expansion), "", *_gpus(matrix, expansion.cells), *previews]


def _versions(matrix: Matrix, expansion: Expansion) -> list[str]:
    rows = []
    for rocm in matrix.rocm:
        cells = [cell for cell in expansion.cells if cell.rocm == rocm]
        pythons = {python for cell in cells for python in expansion.pythons[cell] if not cell.amd_torch}
        torches = (_torch(torch, [cell for cell in cells if not cell.amd_torch]) for torch in matrix.torch)
        named = (", ".join(filter(None, torches)) or _NONE, _amd_torches(cells) or _NONE)
        rows.append((rocm, *named, _span(matrix.python, pythons)))
    return table(("ROCm", "torch", "AMD's torch (Python)", "Python"), rows)


def _torch(torch: str, cells: Iterable[Cell]) -> str:
    """A torch version, with its backends if releases do not have both; empty without cells."""
    own = [cell for cell in cells if cell.torch == torch]
    released = {cell.backend for cell in own if not cell.commit}
    previews = {cell.backend for cell in own} - released
    if len(released) == len(Backend) or not own:
        return torch if own else ""
    names = ", ".join(backend.display_name for backend in Backend if backend in released)
    preview = "".join(f"{backend.display_name} preview" for backend in Backend if backend in previews)
    return f"{torch} ({'; '.join(filter(None, (names, preview))) if preview else f'{names} only'})"


def _amd_torches(cells: Iterable[Cell]) -> str:
    """AMD's own versions of torch, newest first; neighbours share a list of the Pythons of their images."""
    images = {(cell.torch, cell.python) for cell in cells if cell.amd_torch}
    pythons: dict[str, list[str]] = defaultdict(list)
    for torch, python in sorted(sorted(images), key=lambda image: Version(image[0]), reverse=True):
        pythons[torch].append(python)
    groups = groupby(pythons, lambda torch: ", ".join(pythons[torch]))
    return "; ".join(f"{', '.join(torches)} ({among})" for among, torches in groups)


def _gpus(matrix: Matrix, cells: Iterable[Cell]) -> list[str]:
    rocms: dict[str, dict[tuple[Backend, bool], set[str]]] = {}
    for cell in cells:
        for arch in matrix.archs(cell):
            rocms.setdefault(arch, defaultdict(set))[cell.backend, bool(cell.commit)].add(cell.rocm)

    def backend_text(arch: str, backend: Backend) -> str:
        released, previews = rocms[arch][backend, False], rocms[arch][backend, True]
        return _span(tuple(matrix.rocm), released or previews, "" if released or not previews else "preview: ")

    archs = sorted(rocms, key=arch_sort_key)
    rows = ((arch, gpu_text(arch), *(backend_text(arch, backend) for backend in Backend)) for arch in archs)
    return table(("arch", "GPUs", *(f"ROCm for {backend.display_name}" for backend in Backend)), rows)


def _span(ordered: tuple[str, ...], among: set[str], unit: str = "") -> str:
    """The versions of `ordered` (newest first) that are in `among`, as spans from oldest to newest.

    A missing version splits a span.
    """
    spans = [list(run) for is_among, run in groupby(reversed(ordered), among.__contains__) if is_among]
    texts = [span[0] if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in spans]
    return unit + ", ".join(texts) if texts else _NONE


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory matrix --only '*-cp312-*' --published wheelhouse --explain"
    add_shared(parser, "--matrix FILE", "--only GLOB")
    add_option(parser, "--published MANIFEST", "omit cells with a wheel in this manifest or release directory")
    shape = parser.add_mutually_exclusive_group()
    add_option(shape, "--table", "print a table of supported versions instead (as Markdown in a pipe)")
    add_option(shape, "--shards", "print a two-level matrix, for more than GitHub's 256 jobs")
    add_option(parser, "--explain", "print on stderr why each combination is built or not")


def execute(options: argparse.Namespace) -> int:
    """Print ``{"include":[...]}`` for the selected unpublished cells, or the supported versions."""
    facts = load_matrix(options.matrix)
    expansion = expand(facts)
    if options.table:
        from wheelfactory.core.terminal import markdown_lines  # late: create_matrix.py needs no rich

        print_rendered(*markdown_lines(supported_tables(facts, expansion)))
        return DONE
    selected = select_cells(expansion, options.only)
    published = _published(options.published, facts) if options.published else frozenset()
    cells = unpublished_cells(selected, published)
    if options.explain:
        print_messages(*explain_selection(expansion, cells, published, options.only))
    if not cells:
        print_messages("nothing to build: every selected cell is published")
    if len(cells) > GITHUB_MATRIX_LIMIT and not options.shards:
        limit = f"GitHub's limit of {GITHUB_MATRIX_LIMIT} jobs in one matrix"
        print_messages(f"warning: {len(cells)} cells exceed {limit}; use --shards, or select fewer with --only")
    print_results(github_matrix(facts, cells, shards=options.shards))
    return DONE


def _published(path: Path, matrix: Matrix) -> frozenset[str]:
    """Read the cells of a manifest or release directory. Raises `InputError` for a directory without a manifest."""
    # not an empty set: a directory without a manifest is more often a typing error than an empty release
    return available_cells(read_manifest(path / MANIFEST_NAME if path.is_dir() else path), matrix)
