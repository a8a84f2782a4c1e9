"""Kernel sets of `real_kernels`, executed as by ``kernels SET --prove``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hip_rocm import HIPCC
from real_kernels import Bench
from stage_arguments import local_executor
from wheelfactory.build.executor import BuildHost, LocalExecutor
from wheelfactory.core.cell import Cell
from wheelfactory.core.files import PACKAGE_DIR
from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.kernel_set import KernelSet, find_host_sets, group_kernel_sets
from wheelfactory.kernels.prove import prove_kernels


@dataclass(frozen=True)
class InsideExecutor(LocalExecutor):
    """Runs programs in the compiler's own system, as in a container: this machine may be older."""

    def prepare_host(self, cell: Cell, report_progress: ProgressCallback) -> BuildHost:
        host = super().prepare_host(cell, report_progress)
        rocm = self.context.host.rocm_path
        assert rocm
        return replace(host, python=rocm / "bin/python3", machine=replace(host.machine, rocm_path=Path("/usr")))


@dataclass(frozen=True)
class Proving:
    """A kernel set and its host code, with the archives of both in a folder."""

    bench: Bench
    device: KernelSet
    host: KernelSet
    archives: Path

    def prove(self, report_progress: ProgressCallback = ignore_progress) -> dict[str, Any]:
        """Execute every kernel, and return the proof."""
        context = self.bench.given(next(iter(self.bench.cells)), "cache")
        executor = InsideExecutor(local_executor(context).context)
        given = (executor, self.device, [self.host], self.archives, report_progress)
        path = prove_kernels(*given, every=True, context=context)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def make_proving(bench: Bench, arch: str, stores: Iterable[Store]) -> Proving:
    """Pack those of the stores that the kernels of an arch need. The bench must be newer than numpy's environment."""
    shutil.copy(HIPCC, bench.rocm / "bin/python3")
    root = (bench.rocm / "root").resolve()
    with (bench.rocm / "fstab").open("a") as file:
        file.write(f"{PACKAGE_DIR} {root}{PACKAGE_DIR} none bind,X-mount.mkdir\n")
    sets = group_kernel_sets(bench.matrix, bench.cells)
    device = next(each for each in sets if each.archs == (arch,))
    made = Proving(bench, device, find_host_sets(sets, device)[0], bench.folder / f"archives-{arch}")
    made.archives.mkdir()
    for store in stores:
        if found := {(arch,): made.device, ("host",): made.host}.get(tuple(store.key.parts["targets"])):
            pack_archive(store, found.id, made.archives, None)
    return made
