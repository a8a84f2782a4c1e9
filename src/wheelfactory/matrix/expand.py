"""Expand a `Matrix` to cells and excluded combinations, select the cells to build, write them as JSON for GitHub."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import product

from packaging.version import Version

from wheelfactory.core.cell import ANY_PYTHON, Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.origins import Image, has_amd_torch, newest_images
from wheelfactory.matrix.rules import Combination, exclusion_check


@dataclass(frozen=True)
class Excluded:
    """A combination that is not built, with the reason."""

    combination: Combination
    reason: str
    amd_torch: bool = False

    @property
    def name(self) -> str:
        """The combination, spelled like a cell id, but with its Python even for Triton."""
        return Cell(*self.combination, self.amd_torch).id

    @property
    def cell(self) -> Cell:
        """The cell that it would be in."""
        return Cell.from_axes(*self.combination, amd_torch=self.amd_torch)


@dataclass(frozen=True)
class Expansion:
    """All combinations of the axes, each either in the `pythons` of a cell or `excluded`."""

    matrix: Matrix
    pythons: dict[Cell, tuple[str, ...]]
    """The Pythons of each cell: one for CK, several for Triton."""
    excluded: tuple[Excluded, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to build, in the order of matrix.yaml."""
        return tuple(self.pythons)


@lru_cache(maxsize=1)  # a command expands its matrix in several places
def expand(matrix: Matrix) -> Expansion:
    """Expand a matrix. Raises `InputError` if the wheels of two cells would have the same file name."""
    pythons: dict[Cell, tuple[str, ...]] = {}
    excluded: list[Excluded] = []
    find_reason = exclusion_check(matrix)
    for combination in product(matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm, matrix.backend):
        if reason := find_reason(combination):
            excluded.append(Excluded(combination, reason))
        else:
            cell = Cell.from_axes(*combination)
            pythons[cell] = (*pythons.get(cell, ()), combination[1])
    find_reason = exclusion_check(matrix, amd_torch=True)
    for combination, reason in _combinations_of_images(matrix):
        if reason := reason or find_reason(combination):
            excluded.append(Excluded(combination, reason, amd_torch=True))
        else:
            pythons[Cell(*combination, amd_torch=True)] = (combination[1],)
    _check_unique_wheels(pythons)
    return Expansion(matrix, pythons, tuple(excluded))


def _combinations_of_images(matrix: Matrix) -> Iterator[tuple[Combination, str]]:
    """Yield the combinations with AMD's own torch, by its images, and why an image cannot be used, or "".

    Only for CK: a Triton wheel does not depend on who built torch.
    """
    found: dict[Combination, str] = {}
    for rocm, facts in matrix.rocm.items():
        usable = newest_images(facts.images)
        for image in facts.images:
            if not has_amd_torch(image) or image.python not in matrix.python or Backend.CK not in matrix.backend:
                continue
            for flash_attn in matrix.flash_attn:
                combination = (flash_attn, image.python, str(image.torch), rocm, Backend.CK)
                reason = _image_reason(matrix, rocm, image, is_usable=image in usable)
                found[combination] = found.get(combination, reason) and reason  # one usable image is enough
    yield from found.items()


def _image_reason(matrix: Matrix, rocm: str, image: Image, *, is_usable: bool) -> str:
    if image.rocm_path is None:
        return f"AMD's image of torch {image.torch} for ROCm {rocm} has no compiler"
    if image.torch not in matrix.torch:
        return f"matrix.yaml has no facts about torch {image.torch}, which is in AMD's image"
    return "" if is_usable else f"an older release of ROCm {rocm} than that of its kernels"


def _check_unique_wheels(cells: dict[Cell, tuple[str, ...]]) -> None:
    first: dict[tuple[str, str, str], Cell] = {}
    for cell in cells:
        label = str(Label.from_cell(cell))
        other = first.setdefault((cell.public_version, cell.python_tag, label), cell)
        if other is not cell:
            which = f"{other.id} and {cell.id} are both labelled {label}"
            hint = "labels have only major and minor: keep one patch version, or exclude one of the two with a reason"
            raise InputError("two cells would make the same wheel", which, hint)


def find_excluded(expansion: Expansion, cell: Cell) -> Iterator[Excluded]:
    """Find the excluded combinations of a cell."""
    return (item for item in expansion.excluded if item.cell == cell)


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
