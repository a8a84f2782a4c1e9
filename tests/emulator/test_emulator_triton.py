"""Kernels that Triton compiles for each family run on the emulator, and changed instructions are noticed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shared_folder import file_lock
from wheelfactory.build.environments import (
    Environment,
    make_build_environment,
    make_layered_environment,
    make_numpy_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.process import capture

pytestmark = pytest.mark.slow

SRC = Path(__file__).parents[2] / "src"
KERNELS, MUTATIONS = (Path(__file__).with_name(name) for name in ("triton_kernels.py", "mutations.py"))

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")


@pytest.fixture
def python(cache: Path, tmp_path: Path) -> Environment:
    """A Python with torch, Triton and numpy, and without what the factory depends on."""
    with file_lock(cache, "environments"):
        torch = make_build_environment(cache)
        layers = (torch, make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache))
    folders = [layer.site_packages for layer in layers]
    return make_layered_environment(tmp_path / "env", torch.python, torch.version, folders)


@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_of_triton(python: Environment, tmp_path: Path, arch: str) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "triton")}

    report = json.loads(capture([python.python, "-I", "-B", KERNELS, SRC, arch], environ=environ).splitlines()[-1])

    assert list(report) == ["forward", "reversed", "3"]
    for found in report.values():
        beyond = found.pop("beyond")
        assert {name for name, each in found.items() if not each["right"] or each["findings"]} == set()
        first = beyond["findings"][0]
        assert first.startswith("add: store outside the buffers: ")
        assert first.endswith(" at byte 4000 of output")
        assert "bytes of local memory" in found["softmax"]["resources"]


def test_most_changes_of_single_instructions_are_noticed(cache: Path, tmp_path: Path, triton_wheel: Path) -> None:
    """A sample; docs/explanation/emulation.md has the result of 210."""
    with file_lock(cache, "environments"):
        torch = make_build_environment(cache)
        layers = (torch, make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache))
    folders = [layer.site_packages for layer in layers]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}

    with open_wheel_environment(cache, triton_wheel, torch.python, torch.version, folders) as environment:
        command: list[str | Path] = [environment.python, "-I", "-B", MUTATIONS, SRC, "gfx942", "30", "1", "!wide*"]
        report = json.loads(capture(command, environ=environ).splitlines()[-1])

    counts: dict[str, int] = {}
    for name, count in report["counts"].items():
        outcome = name.partition(": ")[2]
        counts[outcome] = counts.get(outcome, 0) + count
    assert report["kernels"] > 15
    assert sum(counts.values()) == 30
    assert counts["wrong number"] >= 8
    assert counts["finding"] >= 1
    assert counts["unnoticed"] <= 18
