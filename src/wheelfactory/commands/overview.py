"""The table with which `plan` and `status` begin: cells and CPU hours for each ROCm and torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache

from packaging.version import Version

from wheelfactory.build.setup_py import make_recipe
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.host import Host
from wheelfactory.core.terminal import TextColumn, TextTable
from wheelfactory.core.wrap import count_text
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.kernels.set_estimates import EstimateOrReason, total_cpu_hours
from wheelfactory.matrix.facts import Context

BUILDS_HERE = "builds here"
"""How `local_build` begins for a cell that this machine can build."""

_SHARED = "CPU h: to compile and prove the kernels of a row; kernel sets that rows share count once in the sum"

_COLUMNS = (
    TextColumn("ROCm"),
    TextColumn("torch"),
    TextColumn("wanted", is_number=True),
    TextColumn("published", is_number=True, style="good"),
    TextColumn("build here", is_number=True, style="here"),
    TextColumn("CPU h", is_number=True),
)


def overview_table(
    local_builds: Mapping[Cell, str],
    published: Collection[str] | None,
    estimates: Sequence[tuple[KernelSet, EstimateOrReason]],
) -> TextTable:
    """The table of the selected cells: a row for each ROCm and torch, and the sum.

    `local_builds` has the result of `local_build` for each cell, `published` the ids of published cells (None:
    unknown), `estimates` every kernel set of the cells.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in sorted(
        local_builds, key=lambda one: (Version(one.rocm), Version(one.torch), one.amd_torch), reverse=True
    ):
        groups.setdefault((cell.rocm, cell.torch_text), []).append(cell)

    def numbers(cells: Collection[Cell]) -> tuple[str, str, str, str]:
        return (
            str(len(cells)),
            "-" if published is None else str(sum(cell.id in published for cell in cells)),
            str(sum(local_builds[cell].startswith(BUILDS_HERE) for cell in cells)),
            _hours(frozenset(cells), estimates),
        )

    rows = tuple((*group, *numbers(cells)) for group, cells in groups.items())
    return TextTable(_COLUMNS, rows, ("all", "", *numbers(local_builds)))


def overview_text(table: TextTable, unknown: str) -> list[str | TextTable]:
    """The table, with notes on its hours if they need any; `unknown` is the one that explains ``?``."""
    hours = [row[-1] for row in table.rows]
    is_shared = sum(text != "0.0" for text in hours) > 1
    notes = [*([_SHARED] if is_shared else []), *([unknown] if any("?" in text for text in hours) else [])]
    return [table, *notes]


def local_build_lines(local_builds: Mapping[Cell, str], host: Host) -> list[str]:
    """How many cells build on this machine, and why the others do not."""
    here = sum(text.startswith(BUILDS_HERE) for text in local_builds.values())
    machine = f"{host.cores} cores, {host.memory_gib:.0f} GiB free, ROCm {host.rocm or 'not found'}"
    others = Counter(text for text in local_builds.values() if not text.startswith(BUILDS_HERE))
    reasons = (f"  {count_text(number, 'cell')} not: {reason}" for reason, number in others.most_common())
    return [f"build here   {here} of {count_text(len(local_builds), 'cell')} ({machine})", *reasons]


def _hours(cells: Collection[Cell], estimates: Iterable[tuple[KernelSet, EstimateOrReason]]) -> str:
    """The CPU hours of the kernel sets that these cells link; ``?`` for those without an estimate."""
    needed = [estimate for kernel_set, estimate in estimates if any(cell in cells for cell in kernel_set.cells)]
    unknown = [estimate for estimate in needed if isinstance(estimate, str)]
    known = "" if unknown and len(unknown) == len(needed) else f"{total_cpu_hours(needed):.1f}"
    return " + ".join(filter(None, (known, "?" if unknown else "")))


def local_build(context: Context, cell: Cell) -> str:
    """Whether this machine can build a cell: a text that starts with `BUILDS_HERE`, or why it cannot."""
    try:
        make_recipe(context.matrix, cell, context.host, context.environ, local_build=False)
    except BuildError as error:
        environ = context.environ
        has_engine = _has_engine(environ.get("DOCKER_HOST", ""), environ.get("XDG_RUNTIME_DIR", ""))
        return f"{BUILDS_HERE} in a container" if has_engine else error.which
    return BUILDS_HERE


@cache  # connecting is slow, and the answer is the same for every cell
def _has_engine(docker_host: str, runtime_dir: str) -> bool:
    # imported late: takes a third of a second, and only cells that do not build here need it
    from wheelfactory.build.engine import connect_engine

    with suppress(BuildError):
        connect_engine({"DOCKER_HOST": docker_host, "XDG_RUNTIME_DIR": runtime_dir})
        return True
    return False
