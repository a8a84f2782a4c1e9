"""Triton's kernels for each family run on the emulator, changed instructions are noticed, and upstream's tests pass."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from wheelfactory.build.sources import fetch_file, fetch_source, unpack_source
from wheelfactory.core.files import MATRIX
from wheelfactory.core.process import capture
from wheelfactory.matrix.load import load_matrix

pytestmark = pytest.mark.slow

SRC = Path(__file__).parents[2] / "src"
KERNELS, MUTATIONS, UPSTREAM = (
    Path(__file__).with_name(name) for name in ("triton_kernels.py", "mutations.py", "upstream_tests.py")
)

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
        assert found["softmax"]["local"] > 0


@pytest.fixture
def flash_attention(cache: Path, triton_wheel: Path) -> Iterator[Environment]:
    """The same with flash-attn as this factory finishes it, and einops, which its tests import."""
    einops = load_matrix(MATRIX).dependencies["einops"]
    assert einops.sha256
    with file_lock(cache, "environments"):
        torch = make_build_environment(cache)
        layers = (torch, make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache))
        more = fetch_file("einops", einops.wheel, einops.sha256, cache / "sources", os.environ)
    folders = [layer.site_packages for layer in layers]
    with open_wheel_environment(cache, triton_wheel, torch.python, torch.version, folders, [more]) as environment:
        yield environment


def run_program(environment: Environment, home: Path, *arguments: str | Path) -> Any:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "OMP_NUM_THREADS": "1"}
    return json.loads(capture([environment.python, "-I", "-B", *arguments], environ=environ).splitlines()[-1])


def test_most_changes_of_single_instructions_are_noticed(flash_attention: Environment, tmp_path: Path) -> None:
    """A sample; docs/explanation/emulation.md says what the others have in common."""
    report = run_program(flash_attention, tmp_path, MUTATIONS, SRC, "gfx942", "20", "1", "!wide*", "!grouped*")

    counts: Counter[str] = Counter()
    for name, count in report["counts"].items():
        counts[name.partition(": ")[2]] += count
    assert set(report["kernels"]) >= {"attn_fwd", "_bwd_kernel_dkdv_causal", "_bwd_kernel_dq_causal"}
    assert sum(counts.values()) == 20
    assert counts["wrong number"] + counts["finding"] + counts["not run"] >= 8
    assert len(report["unnoticed"]) <= 12


def test_upstreams_own_tests(flash_attention: Environment, cache: Path, tmp_path: Path) -> None:
    """A sample, drawn by a seed."""
    release = load_matrix(MATRIX).flash_attn["2.8.3"]
    source = unpack_source(fetch_source("2.8.3", release, cache / "sources", os.environ), tmp_path / "source")

    module = source / "tests" / "test_flash_attn_triton_amd.py"
    report = run_program(flash_attention, tmp_path, UPSTREAM, SRC, module, "gfx942", "5", "1")

    assert report == {"arch": "gfx942", "counts": {"right": 5}, "bad": []}
