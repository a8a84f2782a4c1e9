"""A kernel set of full size, from shards on two machines to the wheels of two cells.

Real: the sdist and its setup.py, generate.py, torch.utils.cpp_extension and hipify of two torch releases, ninja, the
linker, auditwheel, all 2,775 kernel sources. Stand-ins: hipcc (see rocm_machine), and of the second torch all but its
Python modules (see stub_torch). A machine is a cache of its own.
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
from wheelfactory.kernels.archive import read_archive_manifest
from wheelfactory.kernels.compiler.store import ObjectRecord
from wheelfactory.wheel.inspect.facts import inspect

pytestmark = pytest.mark.slow

KERNELS, BINDINGS = 2775, 7
SECOND_TORCH = "2.11.0"


def objects_of(paths: Sequence[Path]) -> list[dict[str, ObjectRecord]]:
    return [dict(read_archive_manifest(path).objects) for path in paths]


def test_shards_are_the_whole_set_and_nothing_twice_dispatch_included(kernel_archives: Path) -> None:
    shards = objects_of(sorted(kernel_archives.glob("*.shard-*")))
    names = [name for shard in shards for name in shard]
    assert len(shards) == SHARDS
    assert len(names) == len(set(names)) == KERNELS
    assert {"fmha_fwd_api", "fmha_bwd_api", "fmha_fwd_splitkv_api", "fmha_fwd_appendkv_api"} <= set(names)
    assert all(
        set(read_archive_manifest(path).set_key.sources) == set(names) for path in kernel_archives.glob("*.shard-*")
    )


def test_cells_of_two_torches_and_pythons_link_them_and_compile_seven_files_each(
    kernel_archives: Path, rocm: Mapping[str, str], cache: Path, tmp_path: Path
) -> None:
    user = make_machine(tmp_path / "user", cache, rocm)
    joined = user.run("kernels", SET, "--merge", "--dest", kernel_archives)
    assert joined.returncode == 0, joined.stderr
    (whole,) = objects_of([Path(joined.stdout.strip())])
    assert len(whole) == KERNELS

    python = find_other_python() or Path(sys.executable)
    paper = make_stub_torch(cache, tmp_path / "paper", SECOND_TORCH, python, Path(rocm["ROCM_PATH"]))
    minor = subprocess.run([paper, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True)
    this = f"cp3{sys.version_info[1]}"
    cells = {
        f"fa2.8.3-rocm7.2-torch2.13.0-{this}-ck": rocm["PATH"],
        f"fa2.8.3-rocm7.2-torch{SECOND_TORCH}-cp3{minor.stdout.strip()}-ck": f"{paper.parent}:{os.environ['PATH']}",
    }
    for number, (cell, path) in enumerate(cells.items()):
        builder = make_machine(tmp_path / f"builder{number}", cache, rocm)
        builder.compiled()
        done = builder.run("build", cell, "--kernels", kernel_archives, "--dest", tmp_path, PATH=path)
        assert done.returncode == 0, done.stderr

        compiled = builder.compiled()
        assert len(compiled) == BINDINGS
        assert not any(name.startswith("fmha_") for name in compiled)
        found = inspect(Path(done.stdout.strip()), rocm)
        assert found.distribution
        assert found.distribution.record
        assert found.distribution.record.kernels == read_archive_manifest(Path(joined.stdout.strip())).key
        (extension,) = found.elf_files
        counts = {target: code.objects for target, code in extension.device_code.items()}
        assert counts == dict.fromkeys(("gfx90a", "gfx942", "gfx950"), KERNELS + BINDINGS)


def test_plan_names_this_set_and_its_cells(cache: Path, rocm: Mapping[str, str], tmp_path: Path) -> None:
    planner = make_machine(tmp_path / "planner", cache, rocm)
    done = planner.run("plan", "--only", "fa2.8.3-rocm7.2-*-ck", "--json")
    assert done.returncode == 0, done.stderr
    (known,) = json.loads(done.stdout)["kernel-sets"]
    assert known["id"] == SET
