"""`wheelfactory plan`: the cells, then an estimate for each kernel set; downloads only what it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandResult, run_command
from refresh_kernel_sources import Digests, edit_digests
from release_factory import flash_attn_wheel, make_release
from small_matrix import edited, small_matrix
from wheelfactory.core.errors import BAD_INPUT, DONE
from wheelfactory.kernels import set_estimates
from wheelfactory.kernels.compiler.costs import Measurement
from wheelfactory.kernels.source_list import SourceList, write_source_list

SOURCES = (*(f"fmha_fwd_d64_fp16_x{number}" for number in range(1000)), "fmha_bwd_api")
CK_CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
CELLS = ["fa2.8.3-rocm6.4-torch2.9.1-py3-triton", CK_CELL, "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"]
SETS = [
    *("fa2.8.3-rocm6.4-gfx942", "fa2.8.3-rocm6.4-cxx11"),
    *("fa2.8.3-rocm6.2-gfx90a", "fa2.8.3-rocm6.2-gfx942", "fa2.8.3-rocm6.2-precxx11"),
]

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


IMAGES, WORKFLOW = "images, on a disk of 14 GB", "workflow of a tag, without and with a runner of your own for CK cells"


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


def write_ledger(path: Path, cpu_s: float, api_s: float | None = None) -> Path:
    """Write a ledger in which every source took `cpu_s` seconds for one arch, and the API `api_s` if given."""
    times = {**dict.fromkeys(SOURCES, cpu_s), SOURCES[-1]: api_s or cpu_s}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(Measurement(name, ("gfx942",), "clang", times[name], 500, 9000).to_line() for name in times)
    )
    return path


def test_begins_with_a_table_and_its_sum(run_plan: Plan) -> None:
    shown = run_plan()
    hours = json.loads(run_plan("--json").out)["kernel-cpu-hours"]
    header, *rows, total, _shared, here, reason = shown.out.splitlines()[:7]
    assert header.split("  ") == ["ROCm", "torch", "wanted", "published", "build here", "CPU h"]
    assert [row.split()[:5] for row in rows] == [["6.4", "2.9.1", "2", "-", "1"], ["6.2", "2.5.1", "1", "-", "0"]]
    assert total.split() == ["all", "3", "-", "1", f"{hours:.1f}"]
    assert here.startswith("build here   1 of 3 cells (")
    assert reason == "  2 cells not: CK kernels need hipcc and this machine has no ROCm"
    unknown, more = shown.err.splitlines()
    assert unknown == "published: unknown, as there is no wheelhouse here; name a release as TARGET"
    assert (shown.code, more) == (DONE, "list cells, kernel sets and images with --all")
    assert not any(name in shown.out for name in (*CELLS, *SETS))


def test_the_table_counts_what_is_published_in_the_target(
    run_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default target is the directory `wheelhouse`, if there is one."""
    monkeypatch.chdir(tmp_path)
    make_release(tmp_path / "wheelhouse", [flash_attn_wheel(tmp_path / "made", CELLS[0])])
    named, default = run_plan(str(tmp_path / "wheelhouse")), run_plan()
    assert [line.split()[3] for line in default.out.splitlines()[1:3]] == ["1", "0"]
    # the rest names the memory that is free now
    assert named.out.splitlines()[:4] == default.out.splitlines()[:4]
    assert "folding" not in default.out
    monkeypatch.setattr("wheelfactory.commands.plan.count_foldable", len)
    assert "\nfolding      would save 1 of 1 published wheel: the symbols of another" in run_plan().out


def test_all_prints_a_line_per_cell_then_a_block_per_kernel_set(run_plan: Plan) -> None:
    lines = run_plan("--all", "--shards", "2", "--machines", "1").out.splitlines()[7:]
    assert [line.split()[0] for line in lines[:3]] == CELLS
    *blocks, total, images, workflow = [line for line in lines[3:] if not line.startswith("  ")]
    assert (blocks, images, workflow) == (SETS, IMAGES, WORKFLOW)
    assert total.startswith("kernel sets  5, ")
    start = lines.index(SETS[0])
    head = [SETS[0], "  flash-attn 2.8.3", "  cells      1", "  sources    1,001"]
    assert lines[start : start + 4] == head
    assert [re.sub(r"\d+([.,]\d+)*", "N", line) for line in lines[start + 4 : start + 19]] == [
        "  shards     N, the largest N times the mean",
        "  predicted  from the seed table, no measurement (nine of ten compiles within N%)",
        "  CPU        N h once; N times N h = N h if each cell compiled",
        "  compiles   N once; N if each cell compiled",
        "  proof      N h of these to execute a sample on an emulator",
        "  wall       N h on N x N cores",
        "  cluster    N h with the same machines as workers (kernels --remote)",
        "  memory     N GiB for N compiles at once",
        "  disk       N GB (objects N, archive N)",
        "  pass       longest shard: N of N h",
        "  pass       memory of a runner: N of N GiB",
        "  pass       disk of a runner: N of N GB",
        "  pass       archive as a release asset: N of N GiB",
        "  pass       arguments of the link: N of N MiB",
        "  pass       longest argument of the link: N of N KiB",
    ]


def test_a_set_counts_once_and_for_each_cell_that_links_it(run_plan: Plan, tmp_path: Path) -> None:
    """With torch 2.5.1 in a second ROCm, both C++ ABIs link the device code of ROCm 6.4."""
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("torch: ['2.9.1']", "torch: ['2.9.1', '2.5.1']"))
    shown = run_plan("--json", only="fa2.8.3-rocm6.4-*-ck").sets
    cells = {item["id"].rpartition("-")[2]: len(item["cells"]) for item in shown}
    assert cells == {"gfx942": 2, "cxx11": 1, "precxx11": 1}
    for item in shown:
        assert item["cpu-hours-per-cell"] == pytest.approx(len(item["cells"]) * item["cpu-hours"], abs=0.02)


def test_exceeded_limits_fail(run_plan: Plan, tmp_path: Path) -> None:
    ledger = str(write_ledger(tmp_path / "named.jsonl", 36))
    arguments = ("--shards", "1", "--cores", "1", "--disk", "0.1", "--measured-costs", ledger)
    lines = run_plan(*arguments, "--all", only=CK_CELL).out.splitlines()
    assert "  FAIL       longest shard: 10.01 of 6 h" in lines
    summary = [line for line in run_plan(*arguments, only=CK_CELL).out.splitlines() if "FAIL" in line]
    assert summary[0] == f"  FAIL       longest shard: 10.01 of 6 h ({SETS[0]})"
    assert [line.rpartition("(")[2] for line in summary[1:]] == [f"{SETS[1]}, the worst of 2)"]


def test_json_prints_only_json(run_plan: Plan) -> None:
    shown = run_plan("--json", "--shards", "3")
    document = json.loads(shown.out)
    assert shown.err == ""
    assert {*document} == {"cells", "kernel-sets", "kernel-cpu-hours", "cluster-hours", "images", "workflow"}
    assert [entry["id"] for entry in document["cells"]] == CELLS
    assert [item["id"] for item in shown.sets] == SETS
    first = shown.sets[0]
    assert (first["flash-attn"], first["cells"]) == (["2.8.3"], [CK_CELL])
    assert first["sources"] == 1001
    assert first["shards"] == ["1/3", "2/3", "3/3"]
    assert first["predicted-from"] == "seed table, no measurement (nine of ten compiles within 32%)"
    assert all(item["passed"] for item in first["limits"])
    assert document["kernel-cpu-hours"] == pytest.approx(sum(item["cpu-hours"] for item in shown.sets), abs=0.05)
    images = [(cell["image"], cell["slim"]) for cell in document["cells"]]
    assert [image.partition(":")[2] for image, _ in images] == ["torch", "torch-and-python", "6.2"]
    assert [slim for _, slim in images] == [None, None, SLIM]


def test_an_image_fits_only_with_the_kernels_on_the_runners_disk(run_plan: Plan) -> None:
    (head, line) = run_plan("--all", "--disk", "40", "--shards", "1", only=CK_CELL).out.splitlines()[-5:-3]
    assert head == "images, on a disk of 40 GB"
    document = json.loads(run_plan("--json", "--disk", "20").out)
    assert [(item["tag"], item["slim"], item["disk-gb"], item["fits"]) for item in document["images"]] == [
        ("rocm/pytorch:torch-and-python", False, 30, False),
        ("rocm/pytorch:6.2", False, None, None),
        (SLIM, True, 26, False),
    ]
    kernels = sum(item["disk-bytes"] for item in document["kernel-sets"] if CK_CELL in item["cells"]) / 10**9
    assert document["images"][0]["extra-gb"] == round(kernels, 2)
    assert line == f"  fits       rocm/pytorch:torch-and-python: 30 GB, and {kernels:.1f} GB more for the build"
    line = run_plan("--all", "--disk", "30", only=CK_CELL).out.splitlines()[-4]
    assert line.startswith("  too big    rocm/pytorch:torch-and-python: 30 GB")
    assert "images       0 of 1 fit on a disk of 30 GB" in run_plan("--disk", "30", only=CK_CELL).out
    assert "images       0 of 3 fit on a disk of 30 GB, 1 of unknown size" in run_plan("--disk", "30").out


def test_the_number_of_shards_follows_from_hours_cores_and_memory(run_plan: Plan) -> None:
    def count(*arguments: str) -> int:
        return len(run_plan("--json", *arguments).sets[0]["shards"])

    assert count() == count("--shard-hours", "5") == 1
    some = count("--shard-hours", "0.5")
    assert some > 1
    assert count("--shard-hours", "0.5", "--cores", "1") > 3 * some
    assert count("--shard-hours", "0.5", "--memory", "3") > some


def test_more_machines_finish_sooner_up_to_one_per_shard_and_a_cluster_down_to_its_longest_compile(
    run_plan: Plan,
) -> None:
    machines = (("1", "1"), ("2", "1"), ("4", "1"), ("99", "1"), ("99", "999"), ("999", "999"))
    sets = [run_plan("--json", "--shards", "4", "--machines", n, "--cores", c).sets[0] for n, c in machines]
    hours, cluster = ([one[name] for one in sets] for name in ("wall-hours", "cluster-hours"))
    assert hours[0] > 1.9 * hours[1] > 3.6 * hours[2]
    assert hours[2] == hours[3]
    assert cluster[0] > cluster[1] > cluster[2] > cluster[3] > cluster[4] == cluster[5] > 0


def test_the_ledger_of_the_cache_changes_estimates_and_one_that_is_named_changes_shards_too(
    run_plan: Plan, tmp_path: Path
) -> None:
    write_ledger(tmp_path / "cache" / "ledger.jsonl", 3.6, api_s=3600)
    first, *_ = run_plan("--json", "--shards", "2").sets
    assert first["cpu-hours"] == 2
    assert first["predicted-from"] == "ledger with 1001 measurements of compiler clang"
    assert first["imbalance"] > 1.4, "split by built-in costs, in which the API is not half of all"
    named = write_ledger(tmp_path / "named.jsonl", 36)
    first, *_ = run_plan("--json", "--shards", "7", "--measured-costs", str(named)).sets
    assert first["cpu-hours"] == 10.01
    assert first["imbalance"] == 1, "1,001 equal costs in 7 shards"


def test_without_ck_cells_nothing_is_estimated_or_downloaded(run_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_estimates, "list_sources", None)
    shown = run_plan(only="*-triton")
    assert shown.code == DONE
    assert shown.out.splitlines()[1].split() == ["6.4", "2.9.1", "1", "-", "1", "0.0"]
    assert [line for line in shown.out.splitlines() if not line.startswith("  ")][4:] == [WORKFLOW]
    assert run_plan("--json", only="*-triton").sets == []


def test_unavailable_sources_leave_the_cells_without_an_estimate(run_plan: Plan) -> None:
    shown = run_plan("--all", only="fa2.6.3-rocm6.4-*")
    assert shown.code == DONE
    _, row, _, unknown, _, _, *lines = shown.out.splitlines()
    assert (row.split()[-1], unknown) == ("?", "?: kernel sets without an estimate")
    first, second, third, _, last, other, _, _, _, total, reason, _, image, *workflow = lines
    assert first.startswith("fa2.6.3-rocm6.4-torch2.9.1-cp311-ck  gfx942  ")
    assert (second, third, other) == ("fa2.6.3-rocm6.4-gfx942", "  flash-attn 2.6.3", "fa2.6.3-rocm6.4-cxx11")
    assert last.startswith("  no estimate, cannot list the sources: command failed: git fetch")
    assert "does not appear to be a git repository" in last
    assert image.endswith("30 GB, and 0.0 GB more for the build")
    assert total == "kernel sets  2, 0.0 CPU h in all, 2 without an estimate not counted"
    assert reason == last
    assert shown.err.count("    cloning ") == 1, "tried once, although two sets and two shardings need it"
    assert workflow[-1] == "  2 kernel sets without an estimate not counted"
    for item in run_plan("--json", "--shards", "2", only="fa2.6.3-rocm6.4-*").sets:
        assert item["shards"] == ["1/2", "2/2"], "the requested number"
        assert item["unavailable"].startswith("command failed: git fetch")


def test_one_release_that_can_be_fetched_is_enough_for_a_shared_set(run_plan: Plan, tmp_path: Path) -> None:
    """The matrix says that the sources of 2.8.3, which cannot be fetched now, are those of 2.6.3."""
    matrix, digest = tmp_path / "matrix.yaml", "1a2b3c4d" + 56 * "0"
    text = edit_digests(matrix.read_text(), dict.fromkeys(("2.8.3", "2.6.3"), Digests(digest)))
    absent = f"    git:\n      repository: {(tmp_path / 'absent').as_uri()}\n      tag: v2.8.3\n    kernel-sources"
    matrix.write_text(re.sub(r"    sdist:\n.*\n.*\n    kernel-sources", absent, text, count=1))
    pin = small_matrix().flash_attn["2.6.3"].source_pin
    write_source_list(SourceList(SOURCES, 10**8, digest), pin, tmp_path / "cache")
    found = run_plan("--json", only="*-rocm6.4-*").sets
    assert [item["id"] for item in found] == ["ck-1a2b3c4d-rocm6.4-gfx942", "ck-1a2b3c4d-rocm6.4-cxx11"]
    for item in found:
        assert (item["flash-attn"], item["sources"]) == (["2.8.3", "2.6.3"], len(SOURCES))


def test_the_workflow_of_a_tag_is_predicted_with_and_without_a_runner(run_plan: Plan) -> None:
    without, with_runner = run_plan().out.splitlines()[-2:]
    assert without.startswith("  without a runner  19 jobs of ")
    assert "0 pulls by cells" in without
    # two images, built and verified and uploaded, a shard of each of the five sets, and a proof of each of three archs
    assert with_runner.startswith("  with a runner     33 jobs of ")
    assert "4 pulls by cells, artifacts up to 2.0 GB" in with_runner
    assert "  without a runner  2 jobs of 0.0 h" in run_plan(only=CK_CELL).out, "nothing to build"
    workflow = json.loads(run_plan("--json").out)["workflow"]
    assert (workflow["without-a-runner"]["jobs"], workflow["with-a-runner"]["jobs"]) == (19, 33)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--shards", "257"), "argument --shards: 257 exceeds GitHub's limit of 256 jobs in one matrix"),
        (("--shards", "2", "--shard-hours", "4"), "argument --shard-hours: not allowed with argument --shards"),
        (("--shard-hours", "nan"), "argument --shard-hours: not a number"),
        (("--shard-hours", "0.01"), "budget too small for one compile: --shard-hours 0.01: one compile takes"),
        (("--cores", "1.5"), "argument --cores: not a number"),
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
