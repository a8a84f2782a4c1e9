"""Select the cells to build, and write them as the JSON matrix of GitHub Actions jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from packaging.version import Version

from wheelfactory.core.cell import ANY_PYTHON, Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.expand import Excluded, Expansion, find_excluded
from wheelfactory.matrix.facts import Matrix

# the most jobs of one strategy; GitHub rejects the workflow beyond (GitHub docs; seen in cryfs#543)
GITHUB_MATRIX_LIMIT = 256


def select_cells(expansion: Expansion, only: str) -> tuple[Cell, ...]:
    """Select the cells whose id matches the glob `only`.

    Raises `InputError` if none does, with the reasons if the glob matches excluded combinations.
    """
    if cells := tuple(cell for cell in expansion.cells if fnmatchcase(cell.id, only)):
        return cells
    if excluded := [item for item in expansion.excluded if matches_glob(item, only)]:
        reasons = dict.fromkeys(item.reason for item in excluded)
        raise InputError("all selected combinations are excluded", only, "; ".join(list(reasons)[:3]))
    hint = "globs match cell ids such as fa2.8.3-rocm6.4-torch2.9.1-cp311-ck; `wheelfactory plan --all` lists them"
    raise InputError("no cell matches", only, hint)


def matches_glob(item: Excluded, only: str) -> bool:
    """Whether the glob `only` matches an excluded combination, by its cell id or by its name with its Python."""
    return fnmatchcase(item.cell.id, only) or fnmatchcase(item.name, only)


def require_in_matrix(expansion: Expansion, cell: Cell, python: str | None = None) -> Cell:
    """Return the cell if the matrix has it, for this Python if given. Raises `InputError` with the reason otherwise."""
    if cell in expansion.pythons and (python in (None, ANY_PYTHON) or python in expansion.pythons[cell]):
        return cell
    if found := [item for item in find_excluded(expansion, cell) if python in (None, ANY_PYTHON, item.combination[1])]:
        reasons = dict.fromkeys(item.reason for item in found)
        raise InputError("this combination cannot work", cell.id, "; ".join(reasons))
    raise _not_in_matrix(expansion, cell, python)


def _not_in_matrix(expansion: Expansion, cell: Cell, python: str | None) -> InputError:
    """Create the error that names the first unknown value of the cell, and the known ones."""
    matrix = expansion.matrix
    if cell.amd_torch and cell.torch in matrix.torch:
        hint = f"AMD's torch {cell.torch} with Python {cell.python} is in no image of ROCm {cell.rocm} in matrix.yaml"
        return InputError("not in the matrix", cell.id, hint)
    wanted = {"flash-attn": cell.flash_attn, "Python": python or cell.python, "torch": cell.torch, "ROCm": cell.rocm}
    axes: tuple[Iterable[str], ...] = (matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm)
    for (axis, value), known in zip(wanted.items(), axes, strict=True):
        if value not in (*known, ANY_PYTHON):
            return InputError(f"no {axis} {value} in the matrix", cell.id, f"known: {', '.join(known)}")
    return InputError("not in the matrix", cell.id, f"the matrix has no backend {cell.backend}")


def needs_runner(cell: Cell) -> bool:
    """Whether a cell can be built only on a runner of one's own.

    A GitHub-hosted runner guarantees 14 GB of disk (GitHub's documentation of runners), and an image of rocm/pytorch,
    which CK cells are built in, takes up to 32 GB (ROCm/legacy-rocm-build#3935).
    """
    return cell.backend is Backend.CK


def unpublished_cells(cells: Iterable[Cell], published: Collection[str]) -> tuple[Cell, ...]:
    """Select the cells whose id is not in `published`."""
    return tuple(cell for cell in cells if cell.id not in published)


def github_matrix(matrix: Matrix, cells: Sequence[Cell], *, shards: bool = False) -> str:
    """Write ``{"include":[...]}`` on one line, string values only; with `shards`, nest the cells in groups of 256."""
    entries = [
        {
            "id": cell.id,
            "flash-attn-version": cell.flash_attn,
            "python-version": cell.python,
            "torch-version": cell.torch,
            "rocm-version": cell.rocm,
            "backend": str(cell.backend),
            "image": matrix.image(cell).tag,
        }
        for cell in cells
    ]
    return sharded_strategy_json(entries) if shards else strategy_json(entries)


def strategy_json(entries: Sequence[Mapping[str, str]]) -> str:
    """Write the matrix of a job's strategy, for ``fromJSON``."""
    return json.dumps({"include": entries}, separators=(",", ":"))


def sharded_strategy_json(entries: Sequence[Mapping[str, str]]) -> str:
    """Write a matrix of shards, each with a matrix of at most `GITHUB_MATRIX_LIMIT` entries as text in ``cells``."""
    # a reusable workflow expands each shard, which raises the limit to 256 x 256 cells
    groups = [entries[i : i + GITHUB_MATRIX_LIMIT] for i in range(0, len(entries), GITHUB_MATRIX_LIMIT)]
    return strategy_json([{"shard": str(number), "cells": strategy_json(group)} for number, group in enumerate(groups)])


def explain_selection(
    expansion: Expansion, cells: Collection[Cell], published: Collection[str], only: str
) -> list[str]:
    """Explain what happens to each combination that `only` matches: built, merged, published or refused.

    The totals at the end count all combinations, whatever `only` is.
    """
    selected = frozenset(cells)
    lines = [f"refused   {item.name}: {item.reason}" for item in expansion.excluded if matches_glob(item, only)]
    left_out = 0
    for cell, pythons in expansion.pythons.items():
        if cell.id in published and fnmatchcase(cell.id, only):
            lines.append(f"published {cell.id}")
        elif cell not in selected:
            left_out += 1
        elif len(pythons) > 1:
            lines.append(f"merged    {cell.id}: one wheel for Python {', '.join(sorted(pythons, key=Version))}")
        else:
            lines.append(f"built     {cell.id}")
    if left_out:
        cells_that_do = "cell that does" if left_out == 1 else "cells that do"
        lines.append(f"left out  {left_out} {cells_that_do} not match --only {only}")
    return lines + [_totals(expansion, backend) for backend in sorted(expansion.matrix.backend)]


def _totals(expansion: Expansion, backend: Backend) -> str:
    served = {cell: len(pythons) for cell, pythons in expansion.pythons.items() if cell.backend == backend}
    refused = sum(item.combination[4] == backend for item in expansion.excluded)
    total = sum(served.values()) + refused
    cells = count_text(len(served), "cell")
    return f"{backend}: {total} combinations = {sum(served.values())} in {cells} + {refused} refused"
