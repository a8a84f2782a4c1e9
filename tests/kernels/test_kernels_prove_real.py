"""Kernels of 2.8.3 for a KV cache, by a real compiler, are executed by their own host code.

They are compiled without setup.py, which other tests run: `test_kernels_preview` executes kernels that it compiled.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hip_toolchain import HipToolchain
from proved_kernels import Direct, make_proving
from real_kernels import append_kernels, make_bench
from wheelfactory.build.environments import make_numpy_environment
from wheelfactory.emulator.ck_names import SPLITS

pytestmark = pytest.mark.slow

KERNELS = Direct(
    arch="gfx942",
    direction="fwd_splitkv",
    pattern="*_d32_fp16_batch_*_ps_lse_*@*_d32_fp16_batch_*_pssk_nlogits_nbias_mask_lse_nsquant_pagedkv",
    headers="splitkv",
    standard="c++17",
)


def test_every_kernel_of_a_cache_is_right_for_any_number_of_splits(
    hip: HipToolchain, cache: Path, tmp_path: Path
) -> None:
    """The kernels that combine splits are corrected ones: upstream's are not right."""
    make_numpy_environment(cache)
    bench = make_bench(hip, cache, tmp_path, replace(append_kernels(), archs=(KERNELS.arch,)))
    proving, counted = make_proving(bench, KERNELS.arch, KERNELS.compile(bench)), list[tuple[int, int]]()
    proof = proving.prove(lambda done, total, _note="": counted.append((done, total)))
    assert (proof["faults"], proof["kernels"], proof["set"]) == ([], 7, proving.device.id)
    assert len([name for name in proof["executed"] if "FmhaFwdSplitKVCombine" in name]) == len(SPLITS)
    assert counted[-1] == (len(proof["calls"]), len(proof["calls"]))
