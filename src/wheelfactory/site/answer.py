"""A wheel request -> its answer in Markdown: the lines that install it, why it cannot be, or that it will be built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.version import Version

from wheelfactory.core.cell import Cell
from wheelfactory.core.gpus import PRODUCTS, product
from wheelfactory.matrix.expand import Expansion
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.advice import file_line, index_line
from wheelfactory.site.coverage import Coverage, Covered, State, cover
from wheelfactory.site.markdown import code, fence, prose
from wheelfactory.site.request import Field, read_request
from wheelfactory.site.wheels import newest_first, pythons
from wheelfactory.site.wish import Reading, Wish, read_wish

_SHOWN = 12
"""Install lines, cells and reasons of an answer; the others are counted."""
_NEAREST = 3
_AGAIN = "Edit the request, and it is answered again."

_COST = {Field.BACKEND: 1, Field.FLASH_ATTN: 2, Field.PYTHON: 4, Field.ROCM: 8, Field.TORCH: 16}
"""What it costs a person to change this; powers of two, so that no number of lesser changes outweighs a greater."""


@dataclass(frozen=True)
class Knowledge:
    """What an answer is computed from."""

    matrix: Matrix
    expansion: Expansion
    coverage: Coverage
    site: str | None
    """The address below which ``simple/`` is; None if wheels are installed by their own addresses."""


def answer(matrix: Matrix, expansion: Expansion, rows: Iterable[WheelRow], body: str, site: str | None) -> str:
    """The answer to the body of an issue. Nothing of the body is repeated but digits and dots of versions."""
    known = Knowledge(matrix, expansion, cover(expansion, rows), site)
    wish = read_wish(read_request(body), matrix)
    if any(reading.trouble for reading in wish.readings.values()):
        return _text(["**Not understood.**", "", *_troubles(wish, matrix), "", _AGAIN])
    head = [f"Read as: {_read_as(wish)}.", ""]
    fitting = [covered for covered in known.coverage.cells if _takes(known, wish, covered)]
    if fitting:
        return _text([*head, *_found(known, wish, fitting)])
    return _text([*head, *_impossible(known, wish), *_nearest(known, wish)])


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"


def _takes(known: Knowledge, wish: Wish, covered: Covered) -> bool:
    return wish.takes(covered.cell, known.expansion.pythons[covered.cell], known.matrix.archs(covered.cell))


def _known_values(field: Field, matrix: Matrix) -> str:
    values: dict[Field, Iterable[str]] = {
        Field.TORCH: matrix.torch,
        Field.ROCM: matrix.rocm,
        Field.PYTHON: matrix.python,
        Field.GPU: [f"{arch} ({name})" for arch, name in PRODUCTS.items()],
        Field.FLASH_ATTN: matrix.flash_attn,
        Field.BACKEND: [str(backend) for backend in matrix.backend],
    }
    return ", ".join(map(prose, values[field]))


def _troubles(wish: Wish, matrix: Matrix) -> list[str]:
    return [
        f"- Field {code(field)}: {reading.trouble}. Known: {_known_values(field, matrix)}"
        for field, reading in wish.readings.items()
        if reading.trouble
    ]


def _read_as(wish: Wish) -> str:
    return ", ".join(f"{field} {_shown(field, reading)}" for field, reading in wish.readings.items())


def _shown(field: Field, reading: Reading) -> str:
    if reading.values is None:
        return "any"
    names = [_gpu_name(value) if field is Field.GPU else prose(value) for value in reading.values]
    return " or ".join(names) or prose(reading.unknown)


def _gpu_name(arch: str) -> str:
    return prose(f"{arch} ({product(arch)})" if product(arch) else arch)


def _found(known: Knowledge, wish: Wish, fitting: Sequence[Covered]) -> list[str]:
    """What there is, then what will be built; of releases that were not asked for, only the newest."""
    groups = {state: [covered for covered in fitting if covered.state is state] for state in State}
    lines: list[str] = []
    if published := _of_newest(wish, groups[State.PUBLISHED]):
        lines += [
            "**It exists.** With ROCm's torch installed:",
            "",
            *fence(_limited(install_lines(known, sorted(published, key=_by_row)), "# ")),
            "",
        ]
    if queued := _of_newest(wish, groups[State.MISSING]):
        lines += ["**Queued**: built with the next tag.", ""]
        lines += [*_limited([f"- {code(covered.cell.id)}" for covered in queued], "- "), ""]
    if yanked := _of_newest(wish, groups[State.YANKED]):
        lines += ["**Yanked**, and not replaced:", ""]
        lines += _limited([f"- {code(covered.cell.id)}: {prose(_why_yanked(covered))}" for covered in yanked], "- ")
    return lines


def _by_row(covered: Covered) -> tuple[object, ...]:
    return newest_first(covered.row) if covered.row else ()


def _why_yanked(covered: Covered) -> str:
    return (covered.row.yanked if covered.row else None) or ""


def _of_newest(wish: Wish, cells: Sequence[Covered]) -> list[Covered]:
    """The cells of the newest release among them; all if releases were named. The matrix lists the newest first."""
    if wish.readings[Field.FLASH_ATTN].values is not None or not cells:
        return list(cells)
    return [covered for covered in cells if covered.cell.flash_attn == cells[0].cell.flash_attn]


def _limited(lines: Sequence[str], mark: str) -> list[str]:
    """The first lines, and how many more there are, on a line that begins with `mark`."""
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"{mark}and {more} more"] if more > 0 else [])]


def install_lines(known: Knowledge, cells: Iterable[Covered]) -> list[str]:
    """A line for each index and release, or for each wheel where there is no index, and what it is for."""
    groups: dict[str, list[Covered]] = {}
    for covered in cells:
        if covered.row and covered.row.index_key and known.site:
            requirement = f"flash-attn=={covered.cell.flash_attn}"
            groups.setdefault(index_line(covered.row.index_key, known.site, requirement), []).append(covered)
        elif covered.row:
            groups.setdefault(file_line(covered.row, known.matrix), []).append(covered)
    return [f"{line} # {_purpose(known, members)}" for line, members in groups.items()]


def _purpose(known: Knowledge, members: Sequence[Covered]) -> str:
    rows = [covered.row for covered in members if covered.row]
    cell = members[0].cell
    return f"{cell.backend}, Python {pythons(rows)}, {' '.join(known.matrix.archs(cell))}"


def _impossible(known: Knowledge, wish: Wish) -> list[str]:
    unknown = [(field, reading.unknown) for field, reading in wish.readings.items() if reading.unknown]
    if unknown:
        told = [
            f"- {field} {prose(version)} is not in the matrix, which has {_known_values(field, known.matrix)}"
            for field, version in unknown
        ]
        return ["**Not in the matrix.**", "", *told, ""]
    reasons = dict.fromkeys([*_gpu_reasons(known, wish), *_reasons(known, wish)])
    return ["**It cannot be built.**", "", *_limited([f"- {prose(text)}" for text in reasons], "- "), ""]


def _gpu_reasons(known: Knowledge, wish: Wish) -> Iterator[str]:
    """What the cells that fit but for the GPU are compiled for; none of them has it, or it would have been found."""
    gpu = wish.readings[Field.GPU]
    for covered in known.coverage.cells:
        cell, archs = covered.cell, known.matrix.archs(covered.cell)
        if wish.fits(cell, known.expansion.pythons[cell]):
            what = f"flash-attn {cell.flash_attn} {cell.backend} for ROCm {cell.rocm}"
            yield f"{what} has no kernels for {' or '.join(gpu.values or ())}; it has {', '.join(archs)}"


def _reasons(known: Knowledge, wish: Wish) -> Iterator[str]:
    for item in known.expansion.excluded:
        if wish.fits(Cell.of(*item.combination), [item.combination[1]]):
            yield item.reason


def _nearest(known: Knowledge, wish: Wish) -> list[str]:
    """The wheels that differ least from what was wished for; those that exist if there are any."""
    gpu = wish.readings[Field.GPU]
    fitting = [one for one in known.coverage.cells if any(map(gpu.takes, known.matrix.archs(one.cell)))]
    there = [one for one in fitting if one.state is State.PUBLISHED]
    ordered = sorted(there or fitting, key=lambda one: distance(known, wish, one))[:_NEAREST]
    if not ordered:
        return []
    if not there:
        return ["Nearest that will be built:", "", *(f"- {code(one.cell.id)}" for one in ordered)]
    return ["Nearest that exists:", "", *fence(install_lines(known, ordered))]


def distance(known: Knowledge, wish: Wish, covered: Covered) -> tuple[int, int]:
    """How far a cell is from a wish: what must be changed, then by how many minor versions."""
    cell, pythons = covered.cell, known.expansion.pythons[covered.cell]
    axes = {
        Field.FLASH_ATTN: (cell.flash_attn,),
        Field.TORCH: (cell.torch,),
        Field.ROCM: (cell.rocm,),
        Field.PYTHON: pythons,
        Field.BACKEND: (str(cell.backend),),
    }
    cost = gap = 0
    for field, values in axes.items():
        reading = wish.readings[field]
        if not any(map(reading.takes, values)):
            cost += _COST[field]
            gap += 0 if field is Field.BACKEND else _gap(reading, values)
    return cost, gap


def _gap(reading: Reading, values: Iterable[str]) -> int:
    asked = reading.values or (reading.unknown,)
    return min(abs(_number(one) - _number(other)) for one in asked for other in values)


def _number(version: str) -> int:
    major, minor = (*Version(version).release, 0)[:2]
    return 100 * major + minor
