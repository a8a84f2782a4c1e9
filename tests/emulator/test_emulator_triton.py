"""Triton's kernels for each family run on the emulator, changed instructions are noticed, and upstream's tests pass."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from few_archs import FEW_ARCHS
from shared_folder import file_lock
from wheelfactory.build.environments import (
    Base,
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


@pytest.fixture(scope="module")
def layers(cache: Path) -> list[Environment]:
    """What has torch, Triton and numpy, without what the factory depends on."""
    with file_lock(cache, "environments"):
        return [make_build_environment(cache), make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache)]


def run_program(python: Path, home: Path, kernels: Path, program: Path, *arguments: str | Path) -> Any:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TRITON_CACHE_DIR": str(kernels), "OMP_NUM_THREADS": "1"}
    return json.loads(capture([python, "-I", "-B", program, SRC, *arguments], environ=environ).splitlines()[-1])


@pytest.fixture(scope="module")
def reports(layers: list[Environment], triton_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the kernels gave, by arch and order."""
    folder, torch = tmp_path_factory.mktemp("kernels"), layers[0]
    folders = [layer.site_packages for layer in layers]
    made = make_layered_environment(folder / "env", torch.python, torch.version, folders)
    return run_program(made.python, folder, triton_cache, KERNELS, *ARCHS)


@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_of_triton(reports: Any, arch: str) -> None:
    assert list(reports[arch]) == ["forward", "reversed", "3"]
    for found in reports[arch].values():
        beyond = found.pop("beyond")
        assert {name for name, each in found.items() if not each["right"] or each["findings"]} == set()
        first = beyond["findings"][0]
        assert first.startswith("add: store outside the buffers: ")
        assert first.endswith(" at byte 4000 of output")
        assert found["softmax"]["local"] > 0


@pytest.fixture
def run_beside_flash_attention(
    cache: Path, layers: list[Environment], triton_wheel: Path, triton_cache: Path, tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Runs a program where flash-attn is installed as this factory finishes it, with einops, which its tests import."""
    einops = load_matrix(MATRIX).dependencies["einops"]
    assert einops.sha256
    with file_lock(cache, "environments"):
        more = fetch_file("einops", einops.wheel, einops.sha256, cache / "sources", os.environ)
    with open_wheel_environment(cache, Base.of(*layers), triton_wheel, more) as environment:
        yield partial(run_program, environment.python, tmp_path, triton_cache)


def test_most_changes_of_single_instructions_are_noticed(run_beside_flash_attention: Callable[..., Any]) -> None:
    """A sample, without the cases that run longest and those that run the kernels of another on other layouts."""
    layouts = ("!transposed*", "!packed keys*", "!keys and values*", "!expanded*")
    report = run_beside_flash_attention(MUTATIONS, FEW_ARCHS[0], "20", "1", "!wide*", "!grouped*", *layouts)

    counts: Counter[str] = Counter()
    for name, count in report["counts"].items():
        counts[name.partition(": ")[2]] += count
    assert set(report["kernels"]) >= {"attn_fwd", "_bwd_kernel_dkdv_causal", "_bwd_kernel_dq_causal"}
    assert sum(counts.values()) == 20
    assert len(report["unnoticed"]) == counts["unnoticed"] <= 12


def test_upstreams_own_tests(run_beside_flash_attention: Callable[..., Any], cache: Path, tmp_path: Path) -> None:
    """A sample, drawn by a seed: a KV cache, causal and packed sequences."""
    release = load_matrix(MATRIX).flash_attn["2.8.3"]
    source = unpack_source(fetch_source("2.8.3", release, cache / "sources", os.environ), tmp_path / "source")

    module = source / "tests" / "test_flash_attn_triton_amd.py"
    report = run_beside_flash_attention(UPSTREAM, module, FEW_ARCHS[0], "3", "2")

    assert report == {"arch": FEW_ARCHS[0], "counts": {"right": 3}, "bad": []}
