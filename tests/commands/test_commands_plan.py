"""`wheelfactory plan`: the cells, then an estimate for each kernel set; downloads only what it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandResult, run_command
from small_matrix import edited, small_matrix
from wheelfactory.core.errors import BAD_INPUT, DONE
from wheelfactory.kernels import set_estimates
from wheelfactory.kernels.compiler.costs import Measurement
from wheelfactory.kernels.refresh_sources import edit_kernel_sources
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
      source: measured
    source: index of ROCm 6.2
"""
SIZE = "torch: '2.9.1'\n        disk: 30 GB\n        source: documentation of ROCm 6.4\n    source"


IMAGES, WORKFLOW = "images, on a disk of 14 GB", "workflow of a tag, for CK cells on a runner of your own"


class PlanOutput(CommandResult):
    """Result of `plan`."""

    @property
    def sets(self) -> list[dict[str, Any]]:
        """The kernel sets of the JSON."""
        found = json.loads(self.out)["kernel-sets"]
        assert isinstance(found, list)
        return found


Plan = Callable[..., PlanOutput]


@pytest.fixture
def run_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plan:
    """Run `plan` on the small matrix, where 2.8.3 has known sources and those of 2.6.3 are not available."""
    matrix, cache = tmp_path / "matrix.yaml", tmp_path / "cache"
    absent = ("https://github.com/Dao-AILab/flash-attention", (tmp_path / "absent").as_uri())
    size = ("torch: '2.9.1'\n        source: documentation of ROCm 6.4\n    source", SIZE)
    matrix.write_text(edited(absent, size, ("    source: index of ROCm 6.2\n", SLIM_ENTRY)))
    write_source_list(SourceList(SOURCES, 10**8, ""), small_matrix().flash_attn["2.8.3"].source_pin, cache)

    def run(*arguments: str, only: str = "fa2.8.3-*") -> PlanOutput:
        return PlanOutput(
            *run_command(capsys, "plan", "--matrix", str(matrix), "--cache", str(cache), "--only", only, *arguments)
        )

    return run


def write_ledger(path: Path, cpu_s: float, compiler: str = "clang") -> Path:
    """Write a ledger in which every source took `cpu_s` seconds for one arch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(Measurement(name, ("gfx942",), compiler, cpu_s, 500, 9000).to_line() for name in SOURCES))
    return path


def test_prints_a_line_per_cell_then_a_block_per_kernel_set(run_plan: Plan) -> None:
    shown = run_plan()
    lines = shown.out.splitlines()
    assert shown.code == DONE
    assert [line.split()[0] for line in lines[:3]] == CELLS
    assert [line for line in lines[3:] if not line.startswith("  ")] == [*SETS, IMAGES, WORKFLOW]
    assert shown.err.startswith("3 cells, 1 of them build here")


def test_a_block_has_the_estimate_of_a_kernel_set_and_its_source(run_plan: Plan) -> None:
    shown = run_plan("--shards", "2", "--runners", "1", only=CK_CELL)
    assert shown.out.splitlines()[1:18] == [
        SETS[0],
        "  flash-attn 2.8.3",
        "  cells      1",
        "  sources    1,001",
        "  shards     2, the largest 1.001 times the mean",
        "  predicted  from the seed table, no measurement",
        "  CPU        6.4 h once; 1 times 6.4 h = 6.4 h if each cell compiled",
        "  compiles   1,001 once; 1,001 if each cell compiled",
        "  wall       1.61 h on 1 x 4 cores",
        "  memory     3.6 GiB for 4 compiles at once",
        "  disk       0.59 GB (objects 0.15, archive 0.04)",
        "  pass       longest shard: 0.81 of 6 h",
        "  pass       memory of a runner: 3.64 of 16 GiB",
        "  pass       disk of a runner: 0.59 of 14 GB",
        "  pass       archive as a release asset: 0.04 of 2 GiB",
        "  pass       arguments of the link: 0.22 of 6 MiB",
        "  pass       longest argument of the link: 0.18 of 128 KiB",
    ]


def test_exceeded_limits_fail(run_plan: Plan) -> None:
    lines = run_plan("--shards", "1", "--cores", "1", "--disk", "0.5", only=CK_CELL).out.splitlines()
    assert "  FAIL       longest shard: 6.42 of 6 h" in lines
    assert "  FAIL       disk of a runner: 0.59 of 0.5 GB" in lines


def test_json_prints_only_json(run_plan: Plan) -> None:
    shown = run_plan("--json", "--shards", "3")
    document = json.loads(shown.out)
    assert shown.err == ""
    assert {*document} == {"cells", "kernel-sets", "images", "workflow"}
    assert [entry["id"] for entry in document["cells"]] == CELLS
    assert [item["id"] for item in shown.sets] == SETS
    first = shown.sets[0]
    assert (first["flash-attn"], first["cells"]) == (["2.8.3"], [CK_CELL])
    assert first["sources"] == 1001
    assert first["shards"] == ["1/3", "2/3", "3/3"]
    assert first["predicted-from"] == "seed table, no measurement"
    assert all(item["passed"] for item in first["limits"])


def test_an_image_fits_only_with_the_kernels_on_the_runners_disk(run_plan: Plan) -> None:
    (head, line) = run_plan("--disk", "40", "--shards", "1", only=CK_CELL).out.splitlines()[-5:-3]
    assert head == "images, on a disk of 40 GB"
    assert line == "  fits       rocm/pytorch:torch-and-python: 30 GB, and 0.6 GB more for the build"
    line = run_plan("--disk", "30", only=CK_CELL).out.splitlines()[-4]
    assert line.startswith("  too big    rocm/pytorch:torch-and-python: 30 GB")


def test_json_has_each_image_and_whether_it_fits(run_plan: Plan) -> None:
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


def test_the_number_of_shards_follows_from_hours_cores_and_memory(run_plan: Plan) -> None:
    def count(*arguments: str) -> int:
        return len(run_plan("--json", *arguments).sets[0]["shards"])

    assert count() == count("--budget", "5") == 1
    assert count("--budget", "1") == 2
    assert count("--budget", "1", "--cores", "1") == 7
    assert count("--budget", "1", "--memory", "3") == 4


def test_more_runners_finish_sooner_up_to_one_per_shard(run_plan: Plan) -> None:
    hours = [run_plan("--json", "--shards", "4", "--runners", n).sets[0]["wall-hours"] for n in ("1", "2", "4", "99")]
    assert hours[0] > 1.9 * hours[1] > 3.6 * hours[2]
    assert hours[2] == hours[3]


def test_the_ledger_of_the_cache_changes_estimates_but_not_shards(run_plan: Plan, tmp_path: Path) -> None:
    write_ledger(tmp_path / "cache" / "ledger.jsonl", 36)
    (first, _) = run_plan("--json", "--shards", "2").sets
    assert first["cpu-hours"] == 10.01
    assert first["predicted-from"] == "ledger with 1001 measurements of compiler clang"
    assert first["imbalance"] > 1.001, "split by built-in costs, in which the API is more expensive"


def test_a_named_ledger_changes_estimates_and_shards(run_plan: Plan, tmp_path: Path) -> None:
    named = write_ledger(tmp_path / "named.jsonl", 36)
    write_ledger(tmp_path / "cache" / "ledger.jsonl", 72)
    (first, _) = run_plan("--json", "--shards", "7", "--measured-costs", str(named)).sets
    assert first["cpu-hours"] == 10.01
    assert first["imbalance"] == 1, "1,001 equal costs in 7 shards"


def test_without_ck_cells_nothing_is_estimated_or_downloaded(run_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_estimates, "list_sources", None)
    shown = run_plan(only="*-triton")
    assert shown.code == DONE
    assert [line for line in shown.out.splitlines() if not line.startswith("  ")][1:] == [WORKFLOW]
    assert run_plan("--json", only="*-triton").sets == []


def test_unavailable_sources_leave_the_cells_without_an_estimate(run_plan: Plan) -> None:
    shown = run_plan(only="fa2.6.3-rocm6.4-*")
    assert shown.code == DONE
    first, second, third, _, last, _, image, *workflow = shown.out.splitlines()
    assert first.startswith("fa2.6.3-rocm6.4-torch2.9.1-cp311-ck  gfx942  ")
    assert (second, third) == ("fa2.6.3-rocm6.4-gfx942-cxx11", "  flash-attn 2.6.3")
    assert last.startswith("  no estimate, cannot fetch the sources: command failed: git fetch")
    assert "does not appear to be a git repository" in last
    assert image.endswith("30 GB, and 0.0 GB more for the build")
    assert workflow[-1] == "  1 kernel set without an estimate not counted"


def test_one_release_that_can_be_fetched_is_enough_for_a_shared_set(run_plan: Plan, tmp_path: Path) -> None:
    """The matrix says that the sources of 2.8.3, which cannot be fetched now, are those of 2.6.3."""
    matrix, digest = tmp_path / "matrix.yaml", "1a2b3c4d" + 56 * "0"
    text = edit_kernel_sources(matrix.read_text(), {"2.8.3": digest, "2.6.3": digest})
    absent = f"    git:\n      repository: {(tmp_path / 'absent').as_uri()}\n      tag: v2.8.3\n    kernel-sources"
    matrix.write_text(re.sub(r"    sdist:\n.*\n.*\n    kernel-sources", absent, text, count=1))
    pin = small_matrix().flash_attn["2.6.3"].source_pin
    write_source_list(SourceList(SOURCES, 10**8, digest), pin, tmp_path / "cache")
    (item,) = run_plan("--json", only="*-rocm6.4-*").sets
    assert item["id"] == "ck-1a2b3c4d-rocm6.4-gfx942-cxx11"
    assert (item["flash-attn"], item["sources"]) == (["2.8.3", "2.6.3"], len(SOURCES))


def test_the_workflow_of_a_tag_is_predicted_with_and_without_a_runner(run_plan: Plan) -> None:
    without, with_runner = run_plan().out.splitlines()[-2:]
    assert without.startswith("  without a runner  16 jobs of ")
    assert "0 pulls by cells" in without
    # two images, built and verified and uploaded, and a shard of each of the two sets
    assert with_runner.startswith("  with a runner     24 jobs of ")
    assert "4 pulls by cells, artifacts up to 2.0 GB" in with_runner
    assert "  without a runner  2 jobs of 0.0 h" in run_plan(only=CK_CELL).out, "nothing to build"
    workflow = json.loads(run_plan("--json").out)["workflow"]
    assert (workflow["without-a-runner"]["jobs"], workflow["with-a-runner"]["jobs"]) == (16, 24)


def test_unavailable_sources_are_a_reason_in_json(run_plan: Plan) -> None:
    (item,) = run_plan("--json", only="fa2.6.3-rocm6.4-*").sets
    assert item["shards"] == []
    assert item["unavailable"].startswith("command failed: git fetch")
    (item,) = run_plan("--json", "--shards", "2", only="fa2.6.3-rocm6.4-*").sets
    assert item["shards"] == ["1/2", "2/2"], "the requested number"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--shards", "0"), "argument --shards: not a number from 1 to 999999: '0'"),
        (("--shards", "257"), "argument --shards: 257 exceeds GitHub's limit of 256 jobs in one matrix"),
        (("--shards", "2", "--budget", "4"), "argument --budget: not allowed with argument --shards"),
        (("--budget", "0"), "argument --budget: not a number above zero: '0'"),
        (("--budget", "nan"), "argument --budget: not a number"),
        (("--budget", "0.01"), "budget too small for one compile: --budget 0.01: one compile takes"),
        (("--cores", "1.5"), "argument --cores: not a number"),
        (("--memory", "16GB"), "argument --memory: not a number"),
        (("--disk", "0"), "argument --disk: not a number above zero: '0'"),
        (("--measured-costs", "/absent.jsonl"), "no such file: /absent.jsonl"),
    ],
)
def test_bad_arguments_are_refused(run_plan: Plan, arguments: tuple[str, ...], error: str) -> None:
    shown = run_plan(*arguments, "--json")
    assert shown.code == BAD_INPUT
    assert shown.out == ""
    first, second = shown.err.splitlines()
    assert error in first
    assert second.startswith("hint: ")
