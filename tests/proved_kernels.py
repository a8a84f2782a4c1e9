"""Kernel sets of `real_kernels`, executed as by ``kernels SET --prove``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hip_rocm import HIPCC
from kernel_archive_factory import PARTS, fill
from real_kernels import FMHA, Bench, include_only
from stage_arguments import local_executor
from wheelfactory.build.executor import BuildHost, LocalExecutor
from wheelfactory.build.sources import unpack_source
from wheelfactory.core.cell import Cell
from wheelfactory.core.files import PACKAGE_DIR
from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.compiler.targets import HOST, target_options
from wheelfactory.kernels.kernel_set import KernelSet, find_host_sets, group_kernel_sets
from wheelfactory.kernels.prove import prove_kernels
from wheelfactory.kernels.setup_env import store_folder

_FLAGS = (
    *("-Icsrc/composable_kernel/include", f"-I{FMHA}", "-O3", "-fPIC", "-DCK_TILE_FMHA_FWD_FAST_EXP2=1"),
    *("-fbracket-depth=1024", "-fgpu-flush-denormals-to-zero", "-mllvm", "-amdgpu-early-inline-all=false"),
    *("-mllvm", "-amdgpu-function-calls=false"),
)
"""Of setup.py, but for what this compiler does not end with."""


@dataclass(frozen=True)
class Direct:
    """Kernels to compile for one arch without setup.py, and so without samples."""

    arch: str
    direction: str
    pattern: str
    """Of the kernels' names (``--filter`` of generate.py)."""
    headers: str
    """A pattern of the headers of CK that they need."""
    standard: str
    """Of C++."""
    options: tuple[str, ...] = ()
    """Further options of generate.py."""

    def compile(self, bench: Bench, kept: Iterable[Store] = ()) -> Iterator[Store]:
        """Yield the code for the arch, then the host code with the API, each with what the store `kept` has for it."""
        tree = unpack_source(bench.source, bench.folder / "direct")
        (tree / "placeholder").write_bytes(b"\0")
        include_only(tree, self.headers)
        command = [sys.executable, f"{FMHA}/generate_all.py", "-d", self.direction, "--output_dir", "build"]
        options = ["--receipt", "2", "--optdim", "32", "--filter", self.pattern, *self.options]
        subprocess.run([*command, *options], cwd=tree, check=True)
        names = sorted(path.stem for path in (tree / "build").glob("*.cpp"))
        earlier = {store.key.parts["targets"][0]: store for store in kept}
        for target in (self.arch, HOST):
            sources = [name for name in names if target == HOST or not name.endswith("_api")]
            compile_source = partial(self._compile_source, bench, tree, target, self._precompile(bench, tree, target))
            with ThreadPoolExecutor(2) as pool:
                compiled = pool.map(compile_source, sources)
            objects = dict(zip(sources, compiled, strict=True))
            if store := earlier.get(target):
                objects |= {name: store.object_path(name).read_bytes() for name in store.key.sources}
            key = SetKey({**PARTS, "flags": [*_FLAGS], "targets": [target]}, tuple(sorted(objects)))
            yield fill(store_folder(bench.folder / "cache"), objects, key)

    def _precompile(self, bench: Bench, tree: Path, target: str) -> Path:
        """Compile CK's headers once for all sources: they take more than the host code of a kernel."""
        header, made = tree / f"{target}.hpp", tree / f"{target}.pch"
        header.write_text('#include "fmha_fwd.hpp"\n')
        emit = ("-Xclang", "-emit-pch", "-Xclang", "-o", "-Xclang", str(made))
        self._run(bench, tree, target, header, "header", "-fsyntax-only", *emit)
        return made

    def _compile_source(self, bench: Bench, tree: Path, target: str, headers: Path, name: str) -> bytes:
        made, source = tree / f"{name}-{target}.o", tree / f"build/{name}.cpp"
        include = ("-Xclang", "-include-pch", "-Xclang", str(headers))
        self._run(bench, tree, target, source, name, *include, "-c", "-o", str(made))
        return made.read_bytes()

    def _run(self, bench: Bench, tree: Path, target: str, source: Path, unit: str, *more: str) -> None:
        options = target_options((target,), (self.arch,), str(tree / "placeholder"))
        hipcc: list[str | Path] = [bench.rocm / "bin/hipcc", f"-std={self.standard}", *_FLAGS, *options]
        subprocess.run([*hipcc, f"-cuid={unit}", *more, "-x", "hip", source], cwd=tree, check=True)


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
