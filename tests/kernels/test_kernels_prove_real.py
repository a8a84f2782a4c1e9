"""Kernels of 2.8.3 for a KV cache, by a real compiler, are executed by their own host code.

They are compiled without setup.py, which other tests run: `test_kernels_preview` executes kernels that it compiled.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hip_toolchain import HipToolchain
from kernel_archive_factory import PARTS, fill
from proved_kernels import make_proving
from real_kernels import FMHA, Bench, append_kernels, make_bench
from wheelfactory.build.environments import make_numpy_environment
from wheelfactory.build.sources import unpack_source
from wheelfactory.emulator.ck_names import SPLITS
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.compiler.targets import HOST, target_options
from wheelfactory.kernels.setup_env import store_folder

pytestmark = pytest.mark.slow

ARCH = "gfx942"
DIRECTION = "fwd_splitkv"
FILTER = "*_d32_fp16_batch_*_ps_lse_*@*_d32_fp16_batch_*_pssk_nlogits_nbias_mask_lse_nsquant_pagedkv"
FLAGS = (
    *("-Icsrc/composable_kernel/include", f"-I{FMHA}", "-O3", "-std=c++17", "-fPIC", "-DCK_TILE_FMHA_FWD_FAST_EXP2=1"),
    *("-fgpu-flush-denormals-to-zero", "-mllvm", "-amdgpu-early-inline-all=false"),
    *("-mllvm", "-amdgpu-function-calls=false"),
)
"""Of setup.py, but for what this compiler does not end with."""


def compile_source(bench: Bench, tree: Path, targets: tuple[str], name: str) -> bytes:
    made = tree / f"{name}-{targets[0]}.o"
    options = [*target_options(targets, (ARCH,), str(tree / "placeholder")), f"-cuid={name}", "-x", "hip", "-c"]
    command: list[str | Path] = [bench.rocm / "bin/hipcc", *FLAGS, *options, tree / f"build/{name}.cpp", "-o", made]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    return made.read_bytes()


def compile_stores(bench: Bench) -> Iterator[Store]:
    """The code of an arch, and the host code with the API."""
    tree = unpack_source(bench.source, bench.folder / "direct")
    (tree / "placeholder").write_bytes(b"\0")
    command = [sys.executable, f"{FMHA}/generate.py", "-d", DIRECTION, "--output_dir", "build", "--receipt", "2"]
    subprocess.run([*command, "--optdim", "32"], cwd=tree, check=True)
    names = sorted(path.stem for path in (tree / "build").glob("*.cpp"))
    for target in (ARCH, HOST):
        sources = [name for name in names if target == HOST or not name.endswith("_api")]
        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(partial(compile_source, bench, tree, (target,)), sources))
        key = SetKey({**PARTS, "flags": [*FLAGS], "targets": [target]}, tuple(sources))
        yield fill(store_folder(bench.folder / "cache"), dict(zip(sources, objects, strict=True)), key)


def test_every_kernel_of_a_cache_is_right_for_any_number_of_splits(
    hip: HipToolchain, cache: Path, tmp_path: Path
) -> None:
    """The kernels that combine splits are corrected ones: upstream's are not right."""
    make_numpy_environment(cache)
    wanted = replace(append_kernels(), archs=(ARCH,), filters={DIRECTION: FILTER})
    bench = make_bench(hip, cache, tmp_path, wanted)
    proving, counted = make_proving(bench, ARCH, compile_stores(bench)), list[tuple[int, int]]()
    proof = proving.prove(lambda done, total, _note="": counted.append((done, total)))
    assert (proof["faults"], proof["kernels"], proof["set"]) == ([], 7, proving.device.id)
    assert len([name for name in proof["executed"] if "FmhaFwdSplitKVCombine" in name]) == len(SPLITS)
    assert counted[-1] == (len(proof["calls"]), len(proof["calls"]))
