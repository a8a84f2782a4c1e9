"""A build with filters, by command: only kernels that can be called."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dispatch_release import BINDING, make_dispatch_release
from rocm_machine import ARCHS, count_targets, make_machine, ordinary

pytestmark = pytest.mark.slow

API = "fmha_fwd_api"
KERNELS = 2
"""How many of the eight can be called."""
CELL = f"fa2.8.3-rocm7.2-torch2.13.0-cp3{sys.version_info[1]}-ck"


def test_a_build_compiles_what_the_plan_lists_and_says_what_it_leaves_out(
    tmp_path: Path, cache: Path, small_rocm: Mapping[str, str]
) -> None:
    machine = make_machine(tmp_path / "machine", cache, small_rocm)
    for shared in ("sources", "source-lists"):
        (machine.cache / shared).unlink()  # the small release must not get into the shared cache
    matrix = make_dispatch_release(machine.cache, tmp_path, BINDING)
    machine.compiled()

    planned = machine.run("plan", "--all", "--matrix", matrix, "--only", CELL)
    assert planned.returncode == 0, planned.stderr
    assert f"  sources    {KERNELS + 1}\n" in planned.stdout

    built = machine.run("build", CELL, "--dest", tmp_path / "wheels", "--matrix", matrix)
    assert built.returncode == 0, built.stderr
    assert "left out 6 kernel sources that no call can reach" in built.stderr
    compiled = machine.compiled()
    assert f"{API} for host" in compiled
    assert count_targets(compiled) == {
        **dict.fromkeys(ARCHS, KERNELS), "host": KERNELS + 1, ordinary(*ARCHS): 2, "": 1
    }  # fmt: skip
