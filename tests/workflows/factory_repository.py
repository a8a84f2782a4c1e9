"""This repository as GitHub sees it, with a release of eight kernels, and runners that can build it.

The sandbox has no network, so the cache of a runner is filled with downloads and environments first. Compiled kernels
use a ROCm with a fake compiler (`rocm_machine`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from few_archs import write_few_archs
from rocm_machine import NO_ENGINE, make_machine
from small_release import SMALL_KERNELS, make_small_release
from wheelfactory.commands.targets import TARGET_VARIABLE
from wheelfactory.core.files import MATRIX
from wheelfactory.kernels.source_list import SourceList, write_source_list
from wheelfactory.matrix.load import load_matrix
from workflows.expressions import Expressions
from workflows.runner import RunnerSetup
from workflows.sandbox import copy_tree

TRITON = "fa2.8.3-*-torch2.13.0-py3-triton"
"""Two cells whose real wheels build in seconds."""

COMPILERS = ("as", "c++", "cc", "g++", "gcc", "ld")

TREE = MATRIX.parent


def make_repository(folder: Path, engine: str = NO_ENGINE) -> Path:
    """Copy the working tree into a repository that a test can change, with the matrix of `few_archs`.

    Without a container engine, its jobs run the code of wheels beside their rows.
    """
    folder.mkdir()
    copy_tree(TREE, folder)
    shutil.rmtree(folder / ".venv")
    for path in filter(Path.is_file, (folder / "tests").rglob("*")):
        if path.name != "cells.txt":  # the weekly refresh writes it; no job reads the others, and each gets a copy
            path.unlink()
    write_few_archs(folder / "matrix.yaml")
    if engine == NO_ENGINE:
        jobs = folder / ".github/workflows/_batch.yml"
        jobs.write_text(re.sub('(ci batch (?:prove|verify) "[$]CELLS")', r"\1 --executor local", jobs.read_text()))
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


def stock(cache: Path, folder: Path, matrix: Path, only: str) -> None:
    """Fill the cache with every download and environment of these cells; quick if it is filled."""
    places = ("--dest", folder, "--cache", cache, "--matrix", matrix)
    command = [sys.executable, "-m", "wheelfactory", "run", "--only", only, *map(str, places)]
    subprocess.run(command, check=True, capture_output=True)


def make_target(folder: Path) -> str:
    """The release directory that the runners share, which must exist."""
    target = folder / "wheelhouse"
    target.mkdir()
    return str(target)


def make_runner(folder: Path, shared: Path, environ: Mapping[str, str]) -> Path:
    """The cache of a runner, with copies of the folders that jobs download into: other tests read the shared ones."""
    cache = make_machine(folder, shared, environ).cache
    for name in ("plain", "proofs"):
        (cache / name).unlink()
        shutil.copytree(shared / name, cache / name, ignore=shutil.ignore_patterns(".scratch-*"))
    (shared / "raw").mkdir(exist_ok=True)
    (cache / "raw").symlink_to((shared / "raw").resolve())  # raw wheels, so that setup.py runs only once
    return cache


def triton_place(folder: Path, cache: Path, evaluator: Expressions, engine: str = NO_ENGINE) -> RunnerSetup:
    """The repository with two Triton cells to build, and a release directory as its target."""
    home = folder / "home"
    (home / ".cache").mkdir(parents=True)
    make_runner(home / ".cache/wheelfactory", cache, {})
    return RunnerSetup(
        tree=make_repository(folder / "tree", engine),
        folder=folder,
        expressions=evaluator,
        home=home,
        variables={"WHEELFACTORY_ONLY": TRITON},
        environ={"DOCKER_HOST": engine, TARGET_VARIABLE: make_target(folder)},
    )


def kernel_place(folder: Path, cache: Path, evaluator: Expressions, rocm: Mapping[str, str], only: str) -> RunnerSetup:
    """The repository with a small release whose kernels must be compiled, on runners with ROCm."""
    home = folder / "home"
    (home / ".cache").mkdir(parents=True)
    own = make_runner(home / ".cache/wheelfactory", cache, rocm)
    for shared in ("sources", "source-lists"):
        (own / shared).unlink()  # the small release must not get into the shared cache
    tree = make_repository(folder / "tree")
    matrix = make_small_release(own, folder)
    shutil.copy(matrix, tree / "matrix.yaml")
    release = load_matrix(matrix).flash_attn["2.8.3"]
    listed = SourceList(tuple(sorted(SMALL_KERNELS)), 1000, "")
    write_source_list(listed, release.source_pin, own, release.trim)
    names = ("ROCM_PATH", "ROCM_HOME", "STAND_IN_TORCH", "DOCKER_HOST")
    return RunnerSetup(
        tree=tree,
        folder=folder,
        expressions=evaluator,
        home=home,
        variables={"WHEELFACTORY_ONLY": only, "WHEELFACTORY_RUNNER": "large"},
        environ={
            **{name: rocm[name] for name in names},
            "PATH": rocm["PATH"].partition(":")[0],
            TARGET_VARIABLE: make_target(folder),
        },
        tools=COMPILERS,
    )
