"""Kernels compiled under a limit of memory that Linux keeps: what it kills is compiled again with half as many at once.

The compiler is a stand-in that takes memory for real, a third of what a real one does. See `cgroups` for the limit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cgroups import MemoryLimit, find_missing_requirement, memory_limited
from kernel_project import BINDING, KERNELS, Project, make_project
from wheelfactory.kernels.compiler import ninja
from wheelfactory.kernels.compiler.ninja import NOT_LINKED
from wheelfactory.kernels.compiler.request import READY_TO_LINK, REQUEST_VARIABLE

pytestmark = pytest.mark.slow

JOBS = 4
ROOM_MIB = 300
"""For two compiles and ninja; not for a third."""
COMPILE_MIB = 110
CLANG = """
import sys, time

held = b"x" * (int(sys.argv[1]) << 20)
time.sleep(0.5)
"""

HIPCC_DOES = """
mib=$(sed -n 's/.* \\([0-9]*\\) MiB$/\\1/p' "$source")
echo "$mib" >> tries
python3 -IS clang.py "${mib:-1}" || exit 1
"""
"""Like clang's driver it ends with 1 if the process that it started was killed."""


@pytest.fixture
def limit() -> Iterator[MemoryLimit]:
    reason = find_missing_requirement()
    if reason and os.environ.get("HIP_TOOLCHAIN") == "required":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    with memory_limited(ROOM_MIB) as limit:
        yield limit


def make_hungry_project(folder: Path, *, mib: int = COMPILE_MIB) -> Project:
    """A project whose compiles take this much memory each."""
    project = make_project(folder)
    (project.root / "clang.py").write_text(CLANG)
    for name in KERNELS:
        (project.root / f"build/{name}.hip").write_text(f"// {mib} MiB\n")
    return project


def run(project: Project, limit: MemoryLimit, *command: str) -> subprocess.CompletedProcess[str]:
    """Run what torch would start, under the limit."""
    project.request(jobs=JOBS).write(project.root / "request.json")
    settings = {
        "HIPCC_LOG": str(project.log),
        "HIPCC_DOES": f"cd {project.root}; {HIPCC_DOES}",
        REQUEST_VARIABLE: str(project.root / "request.json"),
    }
    return subprocess.run(
        limit.command(*command),
        cwd=project.build,
        env={"PATH": os.environ["PATH"], **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


OURS = (sys.executable, "-ISB", str(ninja.__file__), "-v")


def test_killed_compiles_are_retried_until_all_succeed(tmp_path: Path, limit: MemoryLimit) -> None:
    project = make_hungry_project(tmp_path)
    done = run(project, limit, *OURS)
    assert done.returncode == 0, done.stdout
    assert project.report().state == READY_TO_LINK
    assert 0 < limit.kills <= JOBS, "all by the one overload of the beginning"
    assert f"with at most {JOBS // 2} compiles at once" in done.stdout
    assert project.sources() == sorted([*KERNELS, BINDING])
    assert sorted(project.finished()) == sorted(KERNELS)


def test_with_memory_for_one_compile_all_run_one_by_one(tmp_path: Path, limit: MemoryLimit) -> None:
    project = make_hungry_project(tmp_path, mib=200)
    done = run(project, limit, *OURS)
    assert done.returncode == 0, done.stdout
    assert "with one compile at a time" in done.stdout
    assert sorted(project.finished()) == sorted(KERNELS)
    assert all(entry.peak_mib >= 200 for entry in project.finished().values())


def test_a_compile_that_does_not_fit_alone_ends_the_build_with_its_name(tmp_path: Path, limit: MemoryLimit) -> None:
    project = make_hungry_project(tmp_path, mib=400)
    done = run(project, limit, *OURS)
    assert done.returncode == NOT_LINKED
    refused = json.loads((project.root / "result.json").read_text())
    assert refused["what"] == "out of memory for one compile alone"
    assert re.fullmatch(r"fmha_\w+, killed at 2\d{2} MiB", refused["which"])
    assert 3 <= len((project.root / "tries").read_text().split()) <= 2 * JOBS
