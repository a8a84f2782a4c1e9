"""The benchmarks that the documentation quotes still run and print the quoted figures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from cgroups import find_missing_requirement
from small_release import DEVICE_KERNELS, KERNELS
from wheelfactory.build.environments import make_build_environment
from wheelfactory.core.files import FALLBACK_SOURCES, ROOT

pytestmark = pytest.mark.slow

NUMBER = re.compile(r"\d+\.\d+|\d+")


def run(name: str, *arguments: str | Path, python: str | Path = sys.executable) -> str:
    command = [python, ROOT / "benchmarks" / name, *arguments]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads of torch that wait for each other compute nothing
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_options_of_the_fallback_are_compared_with_torchs_own_functions(cache: Path, tmp_path: Path) -> None:
    python, results = make_build_environment(cache).python, tmp_path / "results.json"
    small = ("--device", "cpu", "--dtype", "float32", "--presets", "none", "deterministic", "--lengths", "32")
    files = ("--before", FALLBACK_SOURCES / "src", "--results", results)
    _, _, *rows = run("fallback_options.py", *small, *files, python=python).splitlines()
    found = [json.loads(line)["figures"] for line in results.read_text().splitlines()]
    assert [row.split()[:4] for row in rows] == [
        ["none", "forward", "32", "sdpa"],
        ["none", "both", "32", "sdpa"],
        ["deterministic", "both", "32", "sdpa"],
    ]
    for row, figure in zip(rows, found, strict=True):
        to_torch, memory, _, to_earlier = row.split()[-4:]
        assert float(to_torch) == pytest.approx(figure["fallback"]["ms"] / figure["torch"]["ms"], abs=0.006)
        assert float(to_earlier) == pytest.approx(figure["fallback"]["ms"] / figure["before"]["ms"], abs=0.006)
        assert memory == "-", "a CPU's memory is not measured"


def figures(line: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(line)]


def test_plan_md_quotes_the_tables_of_kernels_py(cache: Path) -> None:
    page = (ROOT / "docs/reference/plan.md").read_text().partition("## The whole matrix")[2].partition("\n## ")[0]
    shown = [line for line in page.splitlines() if line.startswith("|")]
    assert len(shown) == 8
    assert set(shown) - set(run("kernels.py", "--cache", cache).splitlines()) == set()


def test_finishing_needs_less_memory_than_auditwheel() -> None:
    size, auditwheel, finish, ratio = run("repair.py", "--megabytes", "40", "--runs", "1").splitlines()
    assert size.endswith("40 MB unpacked")
    theirs, ours = figures(auditwheel), figures(finish)
    assert all(figure > 0 for figure in (*theirs, *ours))
    quotients = [one / other for one, other in zip(ours, theirs, strict=True)]
    assert figures(ratio) == pytest.approx(quotients, abs=0.02)
    assert quotients[2] < 1


def test_one_more_wheel_compiles_no_kernel() -> None:
    first, archive, store, unpacking, ratio = run("second_cell.py", "--small").splitlines()
    compiles = [figures(line)[2] for line in (first, archive, store)]
    assert compiles[0] == 3 * DEVICE_KERNELS + KERNELS + 3  # two samples and the binding
    assert compiles[1:] == [1, 1]
    seconds = [figures(line)[:2] for line in (first, archive)]
    assert all(figure > 0 for pair in seconds for figure in pair)
    assert figures(unpacking)[0] >= 0
    assert figures(ratio) == pytest.approx([seconds[1][0] / seconds[0][0], seconds[1][1] / seconds[0][1]], rel=0.1)


def test_a_cluster_ends_near_the_ideal_and_costs_its_client_little(cache: Path) -> None:
    *_, machine, cluster, uploaded, saved, client = run("cluster.py", "--actions", "40", "--cache", cache).splitlines()
    page = " ".join((ROOT / "docs/how-to/compile-on-a-cluster.md").read_text().split())
    wall, ratio = figures(cluster)[-2:]
    assert f" takes {wall} minutes on " in page
    assert 1 < figures(machine)[-1] < ratio <= 1.15
    assert "; 0 left for this machine" in uploaded
    assert figures(saved)[0] == figures(saved)[2] == 40
    assert figures(client)[0] <= 0.1, "CPU seconds an action"


def test_both_rules_for_parallel_compiles_run_under_a_memory_limit(skip: Callable[[str], NoReturn]) -> None:
    if reason := find_missing_requirement():
        skip(reason)
    halving, admission = run(
        *("parallelism.py", "--cores", "8", "--memory", "16", "--weights", "4", "--kernels", "12")
    ).splitlines()
    assert halving.startswith("8 cores, 16 GiB, weight 4: halving ")
    assert admission.startswith("8 cores, 16 GiB, weight 4: admission ")
    seconds, kills, most = figures(halving)[3:]
    assert seconds > 12 * 10 / 8, "each of the kernels takes at least 9 s"
    assert kills > 0
    assert most == 8
