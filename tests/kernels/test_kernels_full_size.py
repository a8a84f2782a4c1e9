"""A kernel set of full size, from shards on two machines to the wheels of a cell of another torch and Python.

Real: the sdist and its setup.py, generate.py, torch.utils.cpp_extension and hipify of two torch releases, ninja, the
linker, auditwheel, all 2,199 kernel sources that a call can reach. Stand-ins: hipcc (see rocm_machine), and of the
second torch all but its Python modules (see stub_torch). A machine is a cache of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rocm_machine import KERNEL_SET as SET
from rocm_machine import SHARDS, make_machine
from stub_torch import find_other_python, make_stub_torch
from wheelfactory.core.checkout import BUILD_SCRIPT, MATRIX
from wheelfactory.kernels.archive import read_archive_manifest
from wheelfactory.kernels.compiler.store import ObjectRecord
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.load import load_matrix
from wheelfactory.wheel.inspect.facts import inspect

pytestmark = pytest.mark.slow

KERNELS, BINDINGS = 2199, 7
ARCHS = ("gfx90a", "gfx942", "gfx950")
SECOND_TORCH = "2.11.0"


def objects_of(paths: Sequence[Path]) -> list[dict[str, ObjectRecord]]:
    return [dict(read_archive_manifest(path).objects) for path in paths]


def test_shards_are_the_planned_sources_and_nothing_twice_dispatch_included(kernel_archives: Path, cache: Path) -> None:
    planned = list_sources("2.8.3", load_matrix(MATRIX).flash_attn["2.8.3"], cache, os.environ)
    assert planned.left_out == 576
    shards = objects_of(sorted(kernel_archives.glob("*.shard-*")))
    names = [name for shard in shards for name in shard]
    assert len(shards) == SHARDS
    assert len(names) == len(set(names)) == KERNELS
    assert set(names) == set(planned.sources)
    assert {"fmha_fwd_api", "fmha_bwd_api", "fmha_fwd_splitkv_api", "fmha_fwd_appendkv_api"} <= set(names)
    assert all(
        set(read_archive_manifest(path).set_key.sources) == set(names) for path in kernel_archives.glob("*.shard-*")
    )


@pytest.fixture(scope="module")
def merged(
    kernel_archives: Path, rocm: Mapping[str, str], cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The archive of the set, merged from its shards by a third machine, beside them."""
    machine = make_machine(tmp_path_factory.mktemp("merging") / "cache", cache, rocm)
    done = machine.run("kernels", SET, "--merge", "--dest", kernel_archives)
    assert done.returncode == 0, done.stderr
    (archive,) = map(Path, done.stdout.splitlines())
    assert len(read_archive_manifest(archive).objects) == KERNELS
    return archive


def test_build_rocm_sh_makes_both_wheels_for_another_torch_and_python_and_compiles_only_bindings(
    merged: Path, rocm: Mapping[str, str], cache: Path, tmp_path: Path
) -> None:
    machine = make_machine(tmp_path / "cache", cache, rocm)
    python = find_other_python() or Path(sys.executable)
    stub = make_stub_torch(cache, tmp_path / "stub", SECOND_TORCH, python, Path(rocm["ROCM_PATH"]))
    minor = subprocess.run([stub, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True)
    version = f"3.{minor.stdout.strip()}"
    log = Path(rocm["ROCM_PATH"]) / "hipcc.log"
    log.unlink(missing_ok=True)
    path = f"{stub.parent}:{os.environ['PATH']}"
    environ = {**rocm, "BUILD_TRITON_BACKEND": "true", "MAX_JOBS": "3", "PATH": path}
    options = ("--kernels", merged.parent, "--dest", tmp_path, "--cache", machine.cache)
    command: list[str | Path] = [BUILD_SCRIPT, "2.8.3", version, SECOND_TORCH, "auto", *options]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    ck, triton = (inspect(Path(line), environ) for line in done.stdout.splitlines())
    assert ck.distribution and ck.distribution.record
    assert ck.distribution.record.kernels == read_archive_manifest(merged).key
    assert ck.distribution.record.offload_archs == ARCHS
    (extension,) = ck.elf_files
    counts = {target: code.objects for target, code in extension.device_code.items()}
    assert counts == dict.fromkeys(ARCHS, KERNELS + BINDINGS)
    assert extension.needed == ("libamdhip64.so.7",)
    tag = f"cp{version.replace('.', '')}"
    assert ck.distribution.version == "2.8.3+rocm72torch2.11"
    assert ck.distribution.tags[0].startswith(f"{tag}-{tag}-manylinux")
    assert "torch==2.11.*" in ck.distribution.requires_dist
    assert triton.file == "flash_attn-2.8.3+rocm72torch2.11triton-py3-none-any.whl"
    commands = [line for line in log.read_text().splitlines() if " -c " in line]  # ccache preprocesses first
    assert len(commands) == BINDINGS
    assert not any("/fmha_" in command for command in commands)
    assert all(" ".join(f"--offload-arch={arch}" for arch in ARCHS) in command for command in commands)


def test_plan_names_this_set_and_its_cells(cache: Path, rocm: Mapping[str, str], tmp_path: Path) -> None:
    planner = make_machine(tmp_path / "planner", cache, rocm)
    done = planner.run("plan", "--only", "fa2.8.3-rocm7.2-*-ck", "--json")
    assert done.returncode == 0, done.stderr
    (known,) = json.loads(done.stdout)["kernel-sets"]
    assert known["id"] == SET
