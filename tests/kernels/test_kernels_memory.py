"""Kernels compiled under a limit of memory that Linux keeps: as many at once as it allows, and what is killed again.

The compiler is a stand-in that takes the memory predicted for the kernel, for real. See `cgroups` for the limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ninja import BIN_DIR

from cgroups import MemoryLimit, memory_limited, why_not
from kernel_project import BINDING, KERNELS, Project, make_project
from wheelfactory.kernels.compiler import ninja
from wheelfactory.kernels.compiler.costs import Ledger, predict
from wheelfactory.kernels.compiler.order import LINK, VARIABLE

pytestmark = pytest.mark.slow

JOBS = 4
ROOM_MIB = 2400
"""For two compiles of 800 to 930 MiB each, ninja, and the launchers; not for a third."""
HUNGRY = "fmha_fwd_d128_fp16_group"
"""The fifth by its cost: not one of the four that ask at the start, of which the first runs alone as nothing was
measured yet, and with others left to run beside it."""

CLANG = """
import sys, time
from pathlib import Path

mib, name, meeting = int(sys.argv[1]), sys.argv[2], Path("meeting")
waits, beside, over = (meeting / what for what in ("waits", "beside", "over"))
if name == "HUNGRY" and not over.exists():
    waits.touch()
    while not beside.exists():
        time.sleep(0.01)
held = b"x" * (mib << 20)
time.sleep(0.3)
while name != "HUNGRY" and waits.exists() and not over.exists():
    beside.touch()
    time.sleep(0.01)
""".replace("HUNGRY", HUNGRY)
"""Takes memory. The hungry one does so when another holds its own, and that holds it until the hungry one has ended."""

HIPCC_DOES = f"""
mib=$(sed -n 's/.* \\([0-9]*\\) MiB$/\\1/p' "$source")
name=${{source##*/}}
name=${{name%.*}}
echo "start $name" >> events
python3 -IS clang.py "${{mib:-1}}" "$name"
status=$?
[ "$name" = {HUNGRY} ] && touch meeting/over
echo "end $name" >> events
[ "$status" = 0 ] || exit 1
"""
"""Like clang's driver it ends with 1 if the process that it started was killed."""


@pytest.fixture
def limit() -> Iterator[MemoryLimit]:
    reason = why_not()
    if reason and os.environ.get("HIP_TOOLCHAIN") == "required":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    with memory_limited(ROOM_MIB) as limit:
        yield limit


def make_hungry_project(folder: Path, hungry_mib: int | None = None) -> Project:
    """One whose kernels take what is predicted for them; the hungry one if nothing else is said (MiB)."""
    project = make_project(folder)
    (project.root / "clang.py").write_text(CLANG)
    (project.root / "meeting").mkdir()
    if hungry_mib is None:  # nobody waits for anybody
        (project.root / "meeting/over").touch()
    for name in KERNELS:
        mib = predict(Ledger(), name, ("gfx942",), "").peak_mib
        if name == HUNGRY and hungry_mib:
            mib = hungry_mib
        (project.root / f"build/{name}.hip").write_text(f"// {mib} MiB\n")
    return project


def run(project: Project, limit: MemoryLimit, *command: str) -> subprocess.CompletedProcess[str]:
    """Run what torch would start, under the limit."""
    project.order(jobs=JOBS).write(project.root / "order.json")
    settings = {
        "HIPCC_LOG": str(project.log),
        "HIPCC_DOES": f"cd {project.root}; {HIPCC_DOES}",
        VARIABLE: str(project.root / "order.json"),
    }
    return subprocess.run(
        limit.command(*command),
        cwd=project.build,
        env={"PATH": os.environ["PATH"], **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


OURS = (sys.executable, "-ISB", str(ninja.__file__), "-v")


def tries(project: Project) -> list[tuple[str, int]]:
    """Every start of a compile, in order: its source, and the most compiles at once while it ran, itself included."""
    running: list[int] = []
    seen: list[tuple[str, int]] = []
    for line in (project.root / "events").read_text().splitlines():
        what, name = line.split()
        if what == "start":
            running.append(len(seen))
            seen.append((name, 1))
        else:
            running.remove(next(number for number in running if seen[number][0] == name))
        for number in running:
            seen[number] = (seen[number][0], max(seen[number][1], len(running)))
    return seen


def test_as_many_compiles_run_as_memory_allows_and_none_is_killed(tmp_path: Path, limit: MemoryLimit) -> None:
    project = make_hungry_project(tmp_path)
    done = run(project, limit, *OURS)
    assert done.returncode == 0, done.stdout
    assert project.report().state == LINK
    assert limit.kills == 0
    assert max(at_once for _, at_once in tries(project)) == 2
    assert sorted(project.compiled()) == sorted([*KERNELS, BINDING])


def test_with_a_fixed_number_of_jobs_the_same_compiles_are_killed(tmp_path: Path, limit: MemoryLimit) -> None:
    project = make_hungry_project(tmp_path)
    done = run(project, limit, f"{BIN_DIR}/ninja", f"-j{JOBS}")
    assert done.returncode != 0
    assert limit.kills > 0


def test_a_compile_that_takes_far_more_than_predicted_is_tried_again_alone(tmp_path: Path, limit: MemoryLimit) -> None:
    project = make_hungry_project(tmp_path, hungry_mib=1800)
    done = run(project, limit, *OURS)
    assert done.returncode == 0, done.stdout
    assert limit.kills > 0
    assert sorted(project.finished()) == sorted(KERNELS)
    first, *_, last = [at_once for name, at_once in tries(project) if name == HUNGRY]
    assert (first, last) == (2, 1)
    assert project.finished()[HUNGRY].peak_mib >= 1800
