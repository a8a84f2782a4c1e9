"""`wheelfactory plan`: the cells, then what each kernel set will take, and nothing downloaded that is not needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Shown, run_command
from small_matrix import edited, small_matrix
from wheelfactory.core.errors import BAD_INPUT, DONE
from wheelfactory.kernels import set_estimates
from wheelfactory.kernels.compiler.costs import Measurement
from wheelfactory.kernels.source_list import SourceList, write_source_list

SOURCES = (*(f"fmha_fwd_d64_fp16_x{number}" for number in range(1000)), "fmha_bwd_api")
CK_CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
CELLS = ["fa2.8.3-rocm6.4-torch2.9.1-py3-triton", CK_CELL, "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"]
SETS = ["fa2.8.3-rocm6.4-gfx942-cxx11", "fa2.8.3-rocm6.2-gfx90a_gfx942-precxx11"]

SLIM = "rocm/dev-ubuntu-22.04:6.2-complete"
SLIM_ENTRY = f"""\
    slim:
      tag: {SLIM}
      distribution: ubuntu22.04
      glibc: '2.35'
      python: '3.10'
      python-path: /usr/bin/python3
      rocm-path: /opt/rocm
      disk: 26 GB
      source: a size that somebody measured
    source: index of ROCm 6.2
"""
SIZE = "torch: '2.9.1'\n        disk: 30 GB\n        source: documentation of ROCm 6.4\n    source"


class Planned(Shown):
    """What came of `plan`."""

    @property
    def sets(self) -> list[dict[str, Any]]:
        """The kernel sets of the JSON."""
        found = json.loads(self.out)["kernel-sets"]
        assert isinstance(found, list)
        return found


Plan = Callable[..., Planned]


@pytest.fixture
def run_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plan:
    """Plans the cells of 2.8.3 in the small matrix, whose sources are known; those of 2.6.3 cannot be had."""
    matrix, cache = tmp_path / "matrix.yaml", tmp_path / "cache"
    absent = ("https://github.com/Dao-AILab/flash-attention", (tmp_path / "absent").as_uri())
    size = ("torch: '2.9.1'\n        source: documentation of ROCm 6.4\n    source", SIZE)
    matrix.write_text(edited(absent, size, ("    source: index of ROCm 6.2\n", SLIM_ENTRY)))
    write_source_list(SourceList(SOURCES, 10**8), small_matrix().flash_attn["2.8.3"].source_pin, cache)

    def run(*arguments: str, only: str = "fa2.8.3-*") -> Planned:
        return Planned(
            *run_command(capsys, "plan", "--matrix", str(matrix), "--cache", str(cache), "--only", only, *arguments)
        )

    return run


def write_ledger(path: Path, cpu_s: float, compiler: str = "clang") -> Path:
    """A ledger in which each source took this long for one arch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(Measurement(name, ("gfx942",), compiler, cpu_s, 500, 9000).to_line() for name in SOURCES))
    return path


def test_a_line_a_cell_then_a_block_a_kernel_set(run_plan: Plan) -> None:
    shown = run_plan()
    lines = shown.out.splitlines()
    assert shown.code == DONE
    assert [line.split()[0] for line in lines[:3]] == CELLS
    assert [line for line in lines[3:] if not line.startswith("  ")] == [*SETS, "images, on a disk of 14 GB"]
    assert shown.err.startswith("3 cells, 1 of them can be built here")


def test_a_block_says_what_the_set_will_take_and_from_what_it_is_predicted(run_plan: Plan) -> None:
    shown = run_plan("--shards", "2", "--runners", "1", only=CK_CELL)
    assert shown.out.splitlines()[1:17] == [
        SETS[0],
        "  cells      1",
        "  sources    1,001",
        "  shards     2, the largest 1.001 times the mean",
        "  predicted  from the seed table, no measurement",
        "  CPU        6.4 h once; 1 times 6.4 h = 6.4 h if each cell compiled",
        "  compiles   1,001 once; 1,001 if each cell compiled",
        "  wall       1.61 h on 1 x 4 cores",
        "  memory     3.6 GiB for 4 compiles at once",
        "  disk       0.59 GB, of which objects 0.15 and archive 0.04",
        "  pass       longest shard: 0.81 of 6 h",
        "  pass       memory of a runner: 3.64 of 16 GiB",
        "  pass       disk of a runner: 0.59 of 14 GB",
        "  pass       archive as a release asset: 0.04 of 2 GiB",
        "  pass       arguments of the link: 0.22 of 6 MiB",
        "  pass       longest argument of the link: 0.18 of 128 KiB",
    ]


def test_a_limit_that_does_not_hold_is_seen(run_plan: Plan) -> None:
    shown = run_plan("--shards", "1", "--cores", "1", only=CK_CELL)
    assert "  FAIL       longest shard: 6.42 of 6 h" in shown.out.splitlines()


def test_json_is_nothing_but_json(run_plan: Plan) -> None:
    shown = run_plan("--json", "--shards", "3")
    document = json.loads(shown.out)
    assert shown.err == ""
    assert {*document} == {"cells", "kernel-sets", "images"}
    assert [entry["id"] for entry in document["cells"]] == CELLS
    assert [item["id"] for item in shown.sets] == SETS
    first = shown.sets[0]
    assert first["cells"] == [CK_CELL]
    assert first["sources"] == 1001
    assert first["shards"] == ["1/3", "2/3", "3/3"]
    assert first["predicted-from"] == "seed table, no measurement"
    assert all(item["passed"] for item in first["limits"])


def test_the_disk_of_a_runner_says_which_image_fits(run_plan: Plan) -> None:
    (head, line) = run_plan("--disk", "40", "--shards", "1", only=CK_CELL).out.splitlines()[-2:]
    assert head == "images, on a disk of 40 GB"
    assert line == "  fits       rocm/pytorch:torch-and-python: 30 GB, and 0.6 GB more for the build"
    (line,) = run_plan("--disk", "30", only=CK_CELL).out.splitlines()[-1:]
    assert line.startswith("  too big    rocm/pytorch:torch-and-python: 30 GB")


def test_json_has_the_slim_image_and_whether_each_fits(run_plan: Plan) -> None:
    document = json.loads(run_plan("--json", "--disk", "20").out)
    images = [(cell["image"], cell["slim"]) for cell in document["cells"]]
    assert images == [
        ("rocm/pytorch:torch", None),
        ("rocm/pytorch:torch-and-python", None),
        ("rocm/pytorch:6.2", SLIM),
    ]
    assert [(item["tag"], item["slim"], item["disk-gb"], item["fits"]) for item in document["images"]] == [
        ("rocm/pytorch:torch-and-python", False, 30, False),
        ("rocm/pytorch:6.2", False, None, None),
        (SLIM, True, 26, False),
    ]
    assert document["images"][0]["extra-gb"] == 0.59


def test_the_disk_of_a_runner_limits_the_compile_as_well(run_plan: Plan) -> None:
    assert "  FAIL       disk of a runner: 0.59 of 0.5 GB" in run_plan("--disk", "0.5", only=CK_CELL).out.splitlines()


def test_the_budget_of_a_shard_says_how_many_there_are(run_plan: Plan) -> None:
    counts = {hours: len(run_plan("--json", "--budget", hours).sets[1]["shards"]) for hours in ("5", "2", "0.5")}
    assert counts == {"5": 1, "2": 2, "0.5": 7}
    assert len(run_plan("--json").sets[1]["shards"]) == counts["5"]


def test_fewer_cores_or_less_memory_need_more_shards(run_plan: Plan) -> None:
    def count(*arguments: str) -> int:
        return len(run_plan("--json", "--budget", "1", *arguments).sets[0]["shards"])

    assert count() == 2
    assert count("--cores", "1") == 7
    assert count("--memory", "3") == 4


def test_more_runners_end_sooner(run_plan: Plan) -> None:
    hours = [run_plan("--json", "--shards", "4", "--runners", n).sets[0]["wall-hours"] for n in ("1", "2", "4", "99")]
    assert hours[0] > 1.9 * hours[1] > 3.6 * hours[2]
    assert hours[2] == hours[3]


def test_the_cache_has_a_ledger_to_predict_by(run_plan: Plan, tmp_path: Path) -> None:
    write_ledger(tmp_path / "cache" / "ledger.jsonl", 36)
    (first, _) = run_plan("--json", "--shards", "2").sets
    assert first["cpu-hours"] == 10.01
    assert first["predicted-from"] == "ledger with 1001 measurements of compiler clang"
    assert first["imbalance"] > 1.001, "cut as the seed table says, in which the API is heavier"


def test_a_ledger_that_is_named_is_to_cut_by_too(run_plan: Plan, tmp_path: Path) -> None:
    named = write_ledger(tmp_path / "named.jsonl", 36)
    write_ledger(tmp_path / "cache" / "ledger.jsonl", 72)
    (first, _) = run_plan("--json", "--shards", "7", "--ledger", str(named)).sets
    assert first["cpu-hours"] == 10.01
    assert first["imbalance"] == 1, "1,001 equal costs in 7 shards"


def test_without_ck_cells_nothing_is_said_or_fetched(run_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_estimates, "list_sources", None)
    shown = run_plan(only="*-triton")
    assert (shown.code, shown.out.count("\n")) == (DONE, 1)
    assert run_plan("--json", only="*-triton").sets == []


def test_sources_that_cannot_be_had_leave_the_cells(run_plan: Plan) -> None:
    shown = run_plan(only="fa2.6.3-rocm6.4-*")
    assert shown.code == DONE
    first, second, third, last, _, image = shown.out.splitlines()
    assert first.startswith("fa2.6.3-rocm6.4-torch2.9.1-cp311-ck  gfx942  ")
    assert (second, third) == ("fa2.6.3-rocm6.4-gfx942-cxx11", "  cells      1")
    assert last.startswith("  no estimate, cannot fetch the sources: command failed: git fetch")
    assert "does not appear to be a git repository" in last
    assert image.endswith("30 GB, and 0.0 GB more for the build")


def test_sources_that_cannot_be_had_are_a_reason_in_json(run_plan: Plan) -> None:
    (item,) = run_plan("--json", only="fa2.6.3-rocm6.4-*").sets
    assert item["shards"] == []
    assert item["unavailable"].startswith("command failed: git fetch")
    (item,) = run_plan("--json", "--shards", "2", only="fa2.6.3-rocm6.4-*").sets
    assert item["shards"] == ["1/2", "2/2"], "as they were asked for"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--shards", "0"), "argument --shards: not a number from 1 to 999999: '0'"),
        (("--shards", "two"), "argument --shards: not a number"),
        (("--shards", "257"), "argument --shards: 257 is more than the 256 that a GitHub matrix takes"),
        (("--shards", "2", "--budget", "4"), "argument --budget: not allowed with argument --shards"),
        (("--budget", "0"), "argument --budget: not an amount above zero: '0'"),
        (("--budget", "nan"), "argument --budget: not an amount"),
        (("--budget", "0.01"), "budget too small for one compile: --budget 0.01: one compile takes"),
        (("--runners", "-1"), "argument --runners: not a number"),
        (("--cores", "1.5"), "argument --cores: not a number"),
        (("--memory", "16GB"), "argument --memory: not an amount"),
        (("--disk", "0"), "argument --disk: not an amount above zero: '0'"),
        (("--ledger", "/absent.jsonl"), "no such file: /absent.jsonl"),
    ],
)
def test_bad_arguments_are_refused(run_plan: Plan, arguments: tuple[str, ...], error: str) -> None:
    shown = run_plan(*arguments, "--json")
    assert shown.code == BAD_INPUT
    assert shown.out == ""
    first, second = shown.err.splitlines()
    assert error in first
    assert second.startswith("hint: ")
