"""Expand a `Matrix` to cells, and to the excluded combinations with their reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.images import Image, has_amd_torch, newest_images
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
