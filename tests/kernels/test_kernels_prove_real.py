"""A kernel set of a real compiler is executed on the emulator, by the host code of its own set."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hip_rocm import HIPCC
from hip_toolchain import HipToolchain
from real_kernels import Bench, append_kernels, make_bench
from stage_arguments import local_executor
from wheelfactory.build.environments import make_numpy_environment
from wheelfactory.build.executor import BuildHost, LocalExecutor
from wheelfactory.core.cell import Cell
from wheelfactory.core.files import PACKAGE_DIR
from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.emulator.ck_names import SPLITS
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.kernel_set import KernelSet, find_host_sets, group_kernel_sets
from wheelfactory.kernels.prove import prove_kernels
from wheelfactory.kernels.setup_env import store_folder

pytestmark = pytest.mark.slow

ARCH = "gfx942"


@dataclass(frozen=True)
class InsideExecutor(LocalExecutor):
    """Runs programs in the compiler's own system, as in a container: this machine may be older."""

    def prepare_host(self, cell: Cell, report_progress: ProgressCallback) -> BuildHost:
        host = super().prepare_host(cell, report_progress)
        rocm = self.context.host.rocm_path
        assert rocm
        return replace(host, python=rocm / "bin/python3", machine=replace(host.machine, rocm_path=Path("/usr")))


@dataclass(frozen=True)
class Proved:
    """A bench with the archives of a set and of its host code, in the folder `archives`."""

    bench: Bench
    device: KernelSet
    host: KernelSet

    @property
    def archives(self) -> Path:
        return self.bench.folder / "archives"

    def prove(self, report_progress: ProgressCallback = ignore_progress) -> dict[str, Any]:
        context = self.bench.given(next(iter(self.bench.cells)), "cache")
        executor = InsideExecutor(local_executor(context).context)
        given = (executor, self.device, [self.host], self.archives, report_progress)
        path = prove_kernels(*given, every=True, context=context)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


FILTERS = {
    "fwd_appendkv": "*_d32_fp16_*_psskddv",
    "fwd_splitkv": "*_d32_fp16_batch_*_ps_lse_*@*_d32_fp16_batch_*_pssk_nlogits_nbias_mask_lse_nsquant_pagedkv",
}


def make_proved(hip: HipToolchain, cache: Path, folder: Path) -> Proved:
    make_numpy_environment(cache)
    bench = make_bench(hip, cache, folder, replace(append_kernels(), archs=(ARCH,), filters=FILTERS))
    shutil.copy(HIPCC, bench.rocm / "bin/python3")
    root = (bench.rocm / "root").resolve()
    with (bench.rocm / "fstab").open("a") as file:
        file.write(f"{PACKAGE_DIR} {root}{PACKAGE_DIR} none bind,X-mount.mkdir\n")
    built = bench.build(next(iter(bench.cells)))
    sets = group_kernel_sets(bench.matrix, bench.cells)
    device = next(each for each in sets if each.archs == (ARCH,))
    made = Proved(bench, device, find_host_sets(sets, device)[0])
    made.archives.mkdir()
    for key in built.report.keys:
        store = Store.open(store_folder(bench.folder / "cache"), key)
        is_device = store.key.parts["targets"] == [ARCH]
        pack_archive(store, (made.device if is_device else made.host).id, made.archives, None)
    return made


def test_every_kernel_of_a_cache_is_right_for_any_number_of_splits(
    hip: HipToolchain, cache: Path, tmp_path: Path
) -> None:
    """The kernels that combine splits are corrected ones: upstream's are not right."""
    proved, counted = make_proved(hip, cache, tmp_path), list[tuple[int, int]]()
    proof = proved.prove(lambda done, total, _note="": counted.append((done, total)))
    assert (proof["faults"], proof["kernels"], proof["set"]) == ([], 8, proved.device.id)
    assert len([name for name in proof["executed"] if "FmhaFwdSplitKVCombine" in name]) == len(SPLITS)
    append = next(call for call in proof["calls"] if "appendkv" in call["name"])
    assert {each["name"] for each in append["differences"]} >= {"keys of 0", "values of 1", "queries of 0"}
    assert append["name"] in proof["executed"].values()
    assert counted[-1] == (len(proof["calls"]), len(proof["calls"]))
    assert proved.prove() == proof, "with the same CPU seconds: nothing was executed again"
    (kept,) = (proved.bench.folder / "cache/proofs").glob("calls-*.json")
    kept.write_bytes(kept.read_bytes()[:-3])
    assert proved.prove()["executed"] == proof["executed"], "a damaged report is made again"
    assert [call["cpu_s"] for call in proof["calls"]] != [each["cpu_s"] for each in json.loads(kept.read_bytes())]
