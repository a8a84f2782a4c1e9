"""Our ninja runs on any Python of an image, without packages, and so does the linker that it passes objects to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from kernel_project import BINDING, KERNELS, make_project
from pythons import find_python
from wheelfactory.kernels.compiler import ninja
from wheelfactory.kernels.compiler.ninja import NOT_LINKED
from wheelfactory.kernels.compiler.request import REQUEST_VARIABLE

COMPILE = Path(str(ninja.__file__)).parent

OLD_PYTHON = find_python(9)


@pytest.mark.skipif(OLD_PYTHON is None, reason="needs a Python 3.9")
def test_it_runs_on_python_3_9(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.request().write(project.root / "request.json")
    done = subprocess.run(
        [str(OLD_PYTHON), "-ISB", COMPILE / "ninja.py", "-v"],
        cwd=project.build,
        env={
            **os.environ,
            "HIPCC_LOG": str(project.log),
            "WHEELFACTORY_COMPILE_REQUEST": str(project.root / "request.json"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.sources() == sorted([*KERNELS, BINDING])


# room


@pytest.fixture
def small_disk(tmp_path: Path, skip: Callable[[str], NoReturn]) -> Iterator[Path]:
    """A file system of 1 MiB; gone with the mount namespace or at the end."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command: list[str | Path] = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        skip("needs to be allowed to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_store_is_an_error_and_the_next_run_resumes(small_disk: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path, kernels=small_disk)
    for name in KERNELS:
        with (project.root / f"build/{name}.hip").open("a") as source:
            source.write("x" * 150_000)
    code, _ = project.run(project.request(jobs=1))
    assert code == NOT_LINKED
    refused = (project.root / "result.json").read_text()
    assert "No space left on device" in refused
    kept = sum(len(path.read_text().splitlines()) for path in small_disk.glob("*/journal.jsonl"))
    assert kept < len(KERNELS)

    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    code, output = project.run()
    assert code == 0, output
    assert project.report().reused == kept


# the link


@pytest.mark.parametrize(("targets", "allowed"), [((), False), (("host",), True)], ids=["link", "one target"])
def test_a_link_with_too_many_arguments_is_refused_before_compiling(
    tmp_path: Path, targets: tuple[str, ...], allowed: bool
) -> None:
    """setup.py links with a limit of 512 KiB for arguments: enough for the environment, but not for the objects."""
    project = make_project(tmp_path)
    project.request(targets=targets).write(project.root / "request.json")
    settings = {"HIPCC_LOG": str(project.log), REQUEST_VARIABLE: str(project.root / "request.json")}
    large = {f"LARGE{number}": "x" * (126 << 10) for number in range(4)}
    ours = [sys.executable, "-ISB", f"{COMPILE}/ninja.py", "-v"]
    setup = ["sh", "-c", 'ulimit -s 2048; "$@"; exit $?', "-", *ours]
    environ = {"PATH": os.environ["PATH"], **settings, **large}
    done = subprocess.run(setup, cwd=project.build, env=environ, capture_output=True)
    assert done.returncode == NOT_LINKED
    assert (b"too many arguments for the linker" not in done.stderr) is allowed
    assert len(project.compiled()) == (len(KERNELS) if allowed else 0)


@pytest.mark.slow
def test_a_real_linker_takes_ten_archs_of_objects_once_the_limit_is_raised(tmp_path: Path) -> None:
    """7,569 objects, the number for ten archs of a later flash-attn, with paths as long as in a build."""
    folder = tmp_path / ("build" * 20)
    folder.mkdir()
    first = folder / "0.o"
    subprocess.run(["cc", "-x", "c", "-c", "-", "-o", first], input="", text=True, check=True)
    objects = [folder / f"{'n' * 170}_{number}.o" for number in range(7569)]
    for path in objects:
        path.hardlink_to(first)
    link: list[str | Path] = ["cc", "-shared", "-o", tmp_path / "all.so", *objects]
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["prlimit", "--stack=8388608:", *link], check=True)

    code = (
        "import os, subprocess, sys\n"
        "from wheelfactory.kernels.compiler.request import increase_stack_limit_for_link\n"
        "objects = open('objects').read().split()\n"
        "increase_stack_limit_for_link(os.getpid(), objects, os.environ)\n"
        "subprocess.run(['cc', '-shared', '-o', 'all.so', *objects], check=True)\n"
    )
    (tmp_path / "objects").write_text("\n".join(map(str, objects)))
    subprocess.run(["prlimit", "--stack=8388608:", sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "all.so").exists()
