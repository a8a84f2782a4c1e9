"""Builds with filters, by command: only kernels that can be called, or all of them and the reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dispatch_release import BINDING, make_dispatch_release
from rocm_machine import ARCHS, count_targets, make_machine
from small_release import SMALL_SETS

pytestmark = pytest.mark.slow

API = "fmha_fwd_api"
*_, HOST_SET = SMALL_SETS
LEFT_OUT = "left out 6 kernel sources that no call can reach"
UNPROVED = "compiling all kernels, no proof for the filters"
CELL = f"fa2.8.3-rocm7.2-torch2.13.0-cp3{sys.version_info[1]}-ck"


@pytest.mark.parametrize(
    ("binding", "kernels", "message"),
    [(BINDING, 2, LEFT_OUT), (BINDING.replace("has_lse = true", "has_lse = is_causal"), 8, UNPROVED)],
    ids=["proved", "not proved"],
)
def test_a_build_compiles_what_the_plan_lists_and_says_what_it_leaves_out(
    tmp_path: Path, cache: Path, small_rocm: Mapping[str, str], binding: str, kernels: int, message: str
) -> None:
    machine = make_machine(tmp_path / "machine", cache, small_rocm)
    for shared in ("sources", "source-lists"):
        (machine.cache / shared).unlink()  # the small release must not get into the shared cache
    matrix = make_dispatch_release(machine.cache, tmp_path, binding)
    machine.compiled()

    planned = machine.run("plan", "--all", "--matrix", matrix, "--only", CELL)
    assert planned.returncode == 0, planned.stderr
    assert f"  sources    {kernels + 1}\n" in planned.stdout
    assert (UNPROVED in planned.stderr) is (message == UNPROVED)

    done = machine.run("kernels", HOST_SET, "--dest", tmp_path / "archives", "--matrix", matrix)
    assert done.returncode == 0, done.stderr
    assert message in done.stderr
    compiled = machine.compiled()
    assert count_targets(compiled)["host"] == kernels + 1
    assert f"{API} for host" in compiled

    built = machine.run("build", CELL, "--dest", tmp_path / "wheels", "--matrix", matrix)
    assert built.returncode == 0, built.stderr
    assert message in built.stderr
    later = count_targets(machine.compiled())
    assert (later["host"], later[""]) == (0, 1)
    assert {later[arch] for arch in ARCHS} == {kernels}
