"""The kernel sets of a cell at full size, from one machine to the wheels of another torch and Python.

Real: the sdist and its setup.py, generate.py, torch.utils.cpp_extension and hipify of two torch releases, ninja, the
linker, auditwheel, all 2,199 kernel sources that a call can reach. Stand-ins: hipcc (see rocm_machine), and of the
second torch all but its Python modules (see stub_torch). A machine is a cache of its own.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocm_machine import (
    ARCHS,
    FIRST_CELL_LOG,
    KERNEL_SETS,
    count_targets,
    make_machine,
    ordinary,
    read_compiles,
)
from stub_torch import find_other_python, make_stub_torch
from wheelfactory.core.files import BUILD_SCRIPT, MATRIX
from wheelfactory.kernels.archive import read_archive_manifest
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.load import load_matrix
from wheelfactory.wheel.inspection import inspect

pytestmark = pytest.mark.slow

KERNELS, BINDINGS = 2199, 7
APIS = {"fmha_fwd_api", "fmha_bwd_api", "fmha_fwd_splitkv_api", "fmha_fwd_appendkv_api"}
"""The sources that choose a kernel, which have no device code."""
DEVICE_KERNELS = KERNELS - len(APIS)
KINDS = 11
"""Kinds of kernels; one of each is also compiled the ordinary way."""

SECOND_RELEASE, SECOND_TORCH = "2.8.3.post2", "2.11.0"
"""Of the second wheel; the release has equal kernel sources."""


def test_a_set_is_the_planned_sources_with_device_code(kernel_archives: Path, cache: Path) -> None:
    planned = list_sources("2.8.3", load_matrix(MATRIX).flash_attn["2.8.3"], cache, os.environ)
    assert len(planned.left_out) == 576
    assert len(planned.sources) == KERNELS
    manifest = read_archive_manifest(next(kernel_archives.glob(f"{KERNEL_SETS[0]}-*")))
    assert {*manifest.objects} == {*manifest.set_key.sources} == {*planned.sources} - APIS
    assert len(manifest.objects) == DEVICE_KERNELS


def test_a_cell_compiles_each_arch_and_the_host_code_once(kernel_archives: Path) -> None:
    compiled = read_compiles((kernel_archives / FIRST_CELL_LOG).read_text())
    assert len(set(compiled)) == len(compiled)
    assert count_targets(compiled) == {
        **dict.fromkeys(ARCHS, DEVICE_KERNELS),
        "host": KERNELS,
        ordinary(*ARCHS): KINDS,
        "": BINDINGS,
    }


def test_build_rocm_sh_makes_both_wheels_of_another_release_and_torch_and_compiles_only_bindings(
    kernel_archives: Path, rocm: Mapping[str, str], cache: Path, tmp_path: Path
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
    options = ("--kernels", kernel_archives, "--dest", tmp_path, "--cache", machine.cache)
    command: list[str | Path] = [BUILD_SCRIPT, SECOND_RELEASE, version, SECOND_TORCH, "auto", *options]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    ck, triton = (inspect(Path(line), environ) for line in done.stdout.splitlines())
    assert ck.distribution and ck.distribution.record
    archives = [next(kernel_archives.glob(f"{name}-*[0-9a-f].tar.zst")) for name in KERNEL_SETS]
    keys = "\n".join(read_archive_manifest(path).key for path in archives)
    assert ck.distribution.record.kernels == hashlib.sha256(keys.encode()).hexdigest()
    assert ck.distribution.record.offload_archs == ARCHS
    (extension,) = ck.elf_files
    counts = {target: code.objects for target, code in extension.device_code.items()}
    assert counts == dict.fromkeys(ARCHS, DEVICE_KERNELS + BINDINGS)
    assert extension.needed == ("libamdhip64.so.7",)
    tag = f"cp{version.replace('.', '')}"
    assert ck.distribution.version == f"{SECOND_RELEASE}+rocm72torch2.11"
    assert ck.distribution.tags[0].startswith(f"{tag}-{tag}-manylinux")
    assert "torch==2.11.*" in ck.distribution.requires_dist
    assert triton.file == f"flash_attn-{SECOND_RELEASE}+rocm72torch2.11triton-1-py3-none-any.whl"
    commands = [line for line in log.read_text().splitlines() if " -c " in line]  # ccache preprocesses first
    assert len(commands) == BINDINGS
    assert not any("/fmha_" in command for command in commands)
    assert all(" ".join(f"--offload-arch={arch}" for arch in ARCHS) in command for command in commands)
