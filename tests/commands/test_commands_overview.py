"""The table of `plan` and `status`: rows, sums, and hours of kernel sets that rows share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from small_matrix import small_matrix
from wheelfactory.commands.overview import overview_table, overview_text
from wheelfactory.core.cell import Cell
from wheelfactory.core.terminal import TextTable
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.estimate import CostModel, Estimate, Runners, Sharding, estimate_set
from wheelfactory.kernels.kernel_set import group_kernel_sets
from wheelfactory.kernels.set_estimates import EstimateOrReason
from wheelfactory.kernels.source_list import SourceList

CELLS = [
    Cell.parse(name)
    for name in (
        "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck",
        "fa2.8.3-rocm6.4-torch2.5.1-cp311-ck",
        "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
        "fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
    )
]


@pytest.fixture
def ten_hours() -> Estimate:
    """The estimate of a set that takes ten hours."""
    model = CostModel(Ledger(), Ledger())
    found = estimate_set(SourceList(("fmha_fwd_d64_fp16_x",), 1, ""), ("gfx942",), model, Sharding(Runners(), 1, 9))
    return replace(found, shard_cpu_s=(36_000.0,))


def table_of(estimate: EstimateOrReason, *, without: str = "none") -> TextTable:
    """The table with this estimate for every set; sets whose id contains `without` have none."""
    sets = group_kernel_sets(small_matrix(), CELLS)
    pairs = tuple((one, "absent" if without in one.id else estimate) for one in sets)
    builds = dict.fromkeys(CELLS, "builds here") | {CELLS[0]: "no ROCm", CELLS[1]: "builds here in a container"}
    return overview_table(builds, {CELLS[2].id}, pairs)


def test_each_rocm_and_torch_has_a_row_the_newest_first_and_a_set_that_rows_share_counts_once_in_the_sum(
    ten_hours: Estimate,
) -> None:
    """The rows of ROCm 6.4 share gfx942; each has host code of its own. ROCm 6.2 has two archs."""
    table = table_of(ten_hours)
    assert table.rows == (
        ("6.4", "2.9.1", "2", "1", "2", "20.0"),
        ("6.4", "2.5.1", "1", "0", "1", "20.0"),
        ("6.2", "2.5.1", "1", "0", "0", "30.0"),
    )
    assert table.total == ("all", "", "4", "1", "3", "60.0")
    assert str(overview_text(table, "?: unknown")[-1]).endswith("kernel sets that rows share count once in the sum")


def test_hours_without_an_estimate_are_marked(ten_hours: Estimate) -> None:
    table = table_of(ten_hours, without="rocm6.2-gfx90a")
    assert ([row[5] for row in table.rows], table.total[5]) == (["20.0", "20.0", "20.0 + ?"], "50.0 + ?")
    assert overview_text(table, "?: unknown")[-1] == "?: unknown"
    assert {row[5] for row in table_of("absent").rows} == {"?"}


def test_a_row_spells_torch_as_the_ids_of_its_cells() -> None:
    torches = ("2.9.1amd", "2.10.0", "2.10.0amd")
    cells = [Cell.parse(f"fa2.8.3-rocm7.2-torch{torch}-cp312-ck") for torch in torches]
    table = overview_table(dict.fromkeys(cells, "no"), None, ())
    assert [row[1] for row in table.rows] == ["2.10.0amd", "2.10.0", "2.9.1amd"]


def test_one_row_needs_no_note(ten_hours: Estimate) -> None:
    (cell,) = CELLS[3:]
    table = overview_table({cell: "builds here"}, None, ())
    assert table.rows == (("6.4", "2.9.1", "1", "-", "1", "0.0"),)
    assert overview_text(table, "?: unknown") == [table]
