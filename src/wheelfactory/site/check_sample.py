"""Choose the published wheels that a check of a site installs. No I/O.

The newest wheel is always chosen. The other places are dealt to CK, Triton and flash-attention-amd in turn, and each of
these advances through its wheels from week to week.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, zip_longest

from wheelfactory.core.cell import OFFERED_PRODUCTS, Cell
from wheelfactory.core.label import IndexKey
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.wheel_text import newest_first_key

Pythons = Mapping[Cell, tuple[str, ...]]
"""The cells of the matrix, each with its Pythons (`matrix.expand.Expansion.pythons`)."""


@dataclass(frozen=True)
class SampledWheel:
    """A wheel to install, and what a user of it has."""

    row: WheelRow
    cell: Cell
    """Names the ROCm and the torch to install it with; for a product, the cell of the newest wheel."""
    python: str
    """``3.12``."""
    index: IndexKey

    @property
    def title(self) -> str:
        """The file name with ROCm, torch and Python."""
        return f"{self.row.filename} (ROCm {self.cell.rocm}, torch {self.cell.torch}, Python {self.python})"


def count_weeks(day: date) -> int:
    """The number of ISO weeks before that of `day`, since year 1: it rises by one every Monday, across years too."""
    return (day.toordinal() - 1) // 7


def choose_sample(rows: Iterable[WheelRow], pythons: Pythons, number: int, week: int) -> tuple[SampledWheel, ...]:
    """Choose up to `number` wheels in the week `week` (`count_weeks`).

    Yanked and unverified wheels are never chosen, nor wheels whose torch cannot be installed: AMD's own, which is in
    its images only, and that of a cell which is not in the matrix.
    """
    flash_attn, products = _candidates(rows, pythons)
    if not flash_attn:
        return ()  # flash-attention-amd is listed only in the indexes of flash-attn
    newest = flash_attn[0]
    shared = _sampled(newest, newest, pythons, week)
    chosen = _choose(newest, [*flash_attn[1:], *products], number, week)
    return (shared, *(_sampled(row, newest, pythons, week) for row in chosen))


def _candidates(rows: Iterable[WheelRow], pythons: Pythons) -> tuple[list[WheelRow], list[WheelRow]]:
    """Return the flash-attn wheels and the offered products that can be chosen, the newest first."""
    usable = [row for row in rows if row.yanked is None and not unverified_reason(row)]
    usable.sort(key=newest_first_key)
    usable.sort(key=lambda row: row.published, reverse=True)  # stable, so equal times keep the order above
    installable = {cell.id for cell in pythons if not cell.amd_torch}
    flash_attn = [row for row in usable if row.index_key and row.cell in installable]
    return flash_attn, [row for row in usable if row.product in OFFERED_PRODUCTS]


def _sampled(row: WheelRow, newest: WheelRow, pythons: Pythons, week: int) -> SampledWheel:
    with_torch = row if row.cell else newest
    assert with_torch.cell and with_torch.index_key  # flash-attn wheels have both
    cell = Cell.parse(with_torch.cell)
    served = pythons[cell]
    return SampledWheel(row, cell, served[week % len(served)], row.index_key or with_torch.index_key)


def _choose(newest: WheelRow, others: Iterable[WheelRow], number: int, week: int) -> list[WheelRow]:
    """Pick round-robin over kinds of wheel: `newest`, and `number` - 1 of `others`."""
    queues: dict[str, list[WheelRow]] = defaultdict(list)
    for row in others:
        queues[_kind(row)].append(row)
    # the newest wheel has a place already, so its kind comes last
    kinds = sorted(queues, key=lambda kind: (kind == _kind(newest), kind in OFFERED_PRODUCTS, kind))
    places = _deal_places({kind: len(queues[kind]) for kind in kinds}, number - 1)
    return [row for kind in kinds for row in _take_turn(_alternate(queues[kind]), places[kind], week)]


def _kind(row: WheelRow) -> str:
    """The backend of a flash-attn wheel, or the name of a product."""
    return str(Cell.parse(row.cell).backend) if row.cell else row.product


def _deal_places(sizes: Mapping[str, int], number: int) -> Mapping[str, int]:
    """Deal places to the kinds in turn, to none more than its size."""
    turns = chain.from_iterable(zip_longest(*([kind] * size for kind, size in sizes.items())))
    dealt = [kind for kind in turns if kind is not None][:number]
    return {kind: dealt.count(kind) for kind in sizes}


def _take_turn(queue: Sequence[WheelRow], places: int, week: int) -> Sequence[WheelRow]:
    """Take `places` neighbours of a queue, the next ones each week: all are taken within len / places weeks."""
    start = week * places % len(queue)
    return [*queue[start:], *queue[:start]][:places]


def _alternate(rows: Iterable[WheelRow]) -> list[WheelRow]:
    """Reorder rows so that neighbours differ in ROCm or torch while any other pair of both is left."""
    pairs: dict[tuple[str, ...], list[WheelRow]] = defaultdict(list)
    for row in rows:
        pairs[(row.index_key or ())[:2]].append(row)
    return [row for turn in zip_longest(*pairs.values()) for row in turn if row is not None]
