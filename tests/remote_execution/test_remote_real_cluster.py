"""Real kernels through a real cluster: BuildGrid, PostgreSQL, and two buildbox workers with a real HIP compiler.

One test, because the compiles are most of its time.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from ninja import BIN_DIR

from hip_toolchain import HipToolchain
from kernel_flags import FLAGS
from remote_cluster import Cluster, cluster, wait_for
from wheelfactory.build.sources import fetch_source, unpack_source
from wheelfactory.core.files import MATRIX, PACKAGE_DIR, file_sha256
from wheelfactory.core.process import capture
from wheelfactory.core.progress import ignore_progress
from wheelfactory.kernels.compiler.commands import PLACEHOLDER, PLACEHOLDER_BYTES
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.hipcc import kernel_command
from wheelfactory.kernels.compiler.request import REQUEST_VARIABLE, CompileRequest
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory.matrix.load import load_matrix
from wheelfactory_remote.cluster import fill_store
from wheelfactory_remote.kernels import find_missing_kernels
from wheelfactory_remote.server import parse_remote

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="BuildGrid needs Python 3.11"),
]

FMHA = "csrc/composable_kernel/example/ck_tile/01_fmha"
ARCH = "gfx90a"
KERNEL = "fmha_fwd_appendkv_d32_fp16_b64x64x32x32_vr_psskddv"
"""Of head dim 32, the fastest to compile."""


def make_survey(hip: HipToolchain, folder: Path, cache: Path) -> Survey:
    """List the compiles of a kernel with our ninja, in the root of the compiler, where `folder` is /mnt."""
    release = load_matrix(MATRIX).flash_attn["2.8.3"]
    tree = unpack_source(fetch_source("2.8.3", release, cache / "sources", os.environ), folder / "tree")
    generate = [sys.executable, f"{FMHA}/generate.py", "-d", "fwd_appendkv", "--output_dir", "build"]
    (tree / "build").mkdir()
    capture([*generate, "--receipt", "2", "--filter", "*_d32_fp16_*"], cwd=tree)
    shutil.copytree(PACKAGE_DIR, folder / "src/wheelfactory", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(BIN_DIR) / "ninja", folder / "ninja")
    root = f"/mnt/{tree.relative_to(folder)}"
    compiler = "/mnt/src/wheelfactory/kernels/compiler"
    flags = " ".join(FLAGS).replace("-Icsrc", f"-I{root}/csrc")
    command = f"/usr/bin/hipcc {flags} --offload-arch={ARCH} -c $in -o $out"
    edge = f"build {root}/out/{KERNEL}.o: hip {root}/build/{KERNEL}.cpp"
    (tree / "build.ninja").write_text(f"rule hip\n  command = {command}\n{edge}\n")
    request = CompileRequest("/mnt/ninja", "/mnt/kernels", "/mnt/ledger", "/mnt/result", 1, survey="/mnt/survey.json")
    request.write(folder / "request.json")
    script = f"cd {root}; python3 -ISB {compiler}/ninja.py || test $? = 64"
    hip.run(folder, "sh", "-ec", script, **{REQUEST_VARIABLE: "/mnt/request.json"})
    survey = Survey.read(folder / "survey.json")
    assert survey.root == "/mnt/root"
    # as the workers of examples/cluster measure it
    measured = hip.run(folder, "python3", "-ISB", f"{compiler}/survey.py", "/usr/bin/hipcc")
    assert measured.strip() == survey.worker_compiler
    return replace(survey, root=str(folder / "root"))


def fill(survey: Survey, cluster: Cluster, kernels: Path) -> Mapping[tuple[str, tuple[str, ...]], tuple[str, str]]:
    """Have all kernels compiled; return sha256 and worker of each, by name and targets."""
    missing = find_missing_kernels(survey, kernels, Ledger())
    fill_store(survey, missing, parse_remote(cluster.url), ignore_progress)
    stores = [Store(kernels, part.key) for part in survey.parts]
    return {
        (entry.source, entry.targets): (entry.sha256, entry.made_by)
        for store in stores
        for entry in store.read_records().values()
    }


def compile_here(hip: HipToolchain, survey: Survey, folder: Path, name: str, targets: tuple[str, ...]) -> str:
    """Compile a kernel with the same compiler, without a cluster, and return the sha256 of its object."""
    (part,) = [part for part in survey.parts if part.targets == targets]
    (Path(survey.root) / PLACEHOLDER).write_bytes(PLACEHOLDER_BYTES)
    hipcc, *flags = part.command
    output = f"{targets[0]}-{name}.o"
    command = kernel_command(hipcc, flags, f"{survey.root}/{survey.sources[name]}", f"/mnt/{output}")
    hip.run(folder, "env", f"--chdir=/mnt/{Path(survey.root).relative_to(folder)}", *command)
    return file_sha256(folder / output)


def test_a_cluster_makes_the_same_bytes_and_survives_a_killed_worker_and_a_restarted_server(
    hip: HipToolchain, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wheelfactory")
    survey = make_survey(hip, tmp_path, cache)
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", hip, cache, survey.worker_compiler) as running:

        def disturb() -> None:
            wait_for(lambda: all(map(running.is_compiling, ("worker1", "worker2"))), "both workers compile", 300)
            running.kill("worker1")
            time.sleep(3)
            running.kill("server")
            time.sleep(3)
            running.start_server()

        thread = threading.Thread(target=disturb)
        thread.start()
        made = fill(survey, running, tmp_path / "one")
        thread.join()
        expected = {(name, (target,)) for target in (ARCH, "host") for name in survey.sources}
        assert made.keys() == expected, caplog.text + running.log("server")[-3000:] + running.log("worker2")[-3000:]
        # BuildGrid forgets at its restart which results it has, so this compiles some again
        assert fill(survey, running, tmp_path / "two").keys() == made.keys()
        cached = fill(survey, running, tmp_path / "three")
    assert f"{len(made)} kernels from the cluster, {len(made)} of them from its cache" in caplog.text
    assert {worker for _, worker in made.values()} <= {"worker1", "worker2"}
    with ThreadPoolExecutor(2) as pool:
        local = dict(pool.map(lambda item: (item, compile_here(hip, survey, tmp_path, *item)), made))
    for results in (made, cached):
        assert {item: sha256 for item, (sha256, _) in results.items()} == local
