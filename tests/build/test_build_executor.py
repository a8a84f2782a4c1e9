"""The Python that compiles for a CK cell: only one with the cell's torch for the cell's ROCm will do."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from wheel_factory import CK, MATRIX, TRITON, toolchain_of
from wheelfactory.build import executor
from wheelfactory.build.environments import Environment
from wheelfactory.build.executor import (
    LocalExecutor,
    find_rocm_python,
    prepare_rocm_python,
)
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.host import Host
from wheelfactory.core.progress import ignore_progress
from wheelfactory.matrix.facts import Context
from wheelfactory.wheel.read import Toolchain

AMDS = replace(CK, amd_torch=True)


@pytest.mark.parametrize(
    ("toolchain", "cells"),
    [
        (toolchain_of(CK), {CK}),
        (toolchain_of(CK, torch="2.9.1+rocm6.4.1.lw.git0123456"), {AMDS}),
        (toolchain_of(CK, torch="2.9.1+git0123456"), {AMDS}),
        (toolchain_of(CK, hip="6.2.41134"), set()),
        (toolchain_of(CK, hip=None), set()),
        (toolchain_of(CK, torch="2.9.0+rocm6.4"), set()),
        (toolchain_of(CK, python="3.12"), set()),
        (Toolchain(python="3.11"), set()),
    ],
)
def test_a_toolchain_fits_its_cell_only(toolchain: Toolchain, cells: set[Cell]) -> None:
    assert {cell for cell in (CK, AMDS) if toolchain.matches(cell)} == cells


def test_amds_torch_is_never_installed(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"has AMD's torch 2\.9\.1") as refused:
        prepare_rocm_python(AMDS, known(tmp_path))
    assert "in the image of rocm/pytorch that has it" in refused.value.hint


def stand_in(folder: Path, name: str, toolchain: Toolchain) -> Path:
    """A Python that only answers the probe, as one with that torch would."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'JSON'\n{toolchain.model_dump_json()}\nJSON\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def known(tmp_path: Path) -> Context:
    return Context(MATRIX, Host(1, 1), {"PATH": f"{tmp_path / 'bin'}:{os.defpath}"}, tmp_path / "cache")


def test_a_python_on_path_with_the_right_torch_is_used(tmp_path: Path) -> None:
    python = stand_in(tmp_path / "bin", "python3.11", toolchain_of(CK))
    assert find_rocm_python(CK, known(tmp_path)) == python


def test_a_python_on_path_with_invalid_output_is_probed_once_and_not_used(tmp_path: Path) -> None:
    python = stand_in(tmp_path / "bin", "python3.11", toolchain_of(CK))
    python.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/log\necho welcome\n")
    for name in ("python3", "python"):
        (tmp_path / "bin" / name).symlink_to(python)
    assert find_rocm_python(CK, known(tmp_path)) is None
    assert (tmp_path / "log").read_text() == "asked\n"


def test_without_a_python_of_that_version_the_error_names_the_packages(tmp_path: Path) -> None:
    for name in ("python3.11", "python3", "python"):
        stand_in(tmp_path / "bin", name, Toolchain(python="3.13"))
    with pytest.raises(BuildError) as refused:
        prepare_rocm_python(CK, known(tmp_path))
    assert refused.value.which == "there is no Python 3.11 on PATH"
    assert "python3.11-dev" in refused.value.hint


def test_an_unexpected_torch_is_refused_and_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an index served another build: the installation is a stub, but the probe examines the real environment."""

    def install_nothing(environment: Environment, *arguments: str | Path, hint: str = "") -> None:
        assert environment.python.exists()

    monkeypatch.setattr(executor, "pip_install", install_nothing)
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    answer = Toolchain(python="3.11").model_dump_json()
    (bin_dir / "python3.11").write_text(
        f'#!/bin/sh\ncase "$*" in *venv*) exec {sys.executable} "$@";; *) echo \'{answer}\';; esac\n'
    )
    (bin_dir / "python3.11").chmod(0o755)
    with pytest.raises(BuildError, match=r"^unexpected torch for fa2"):
        prepare_rocm_python(CK, known(tmp_path))
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_environment_of_a_cell_is_removed_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is a stand-in: its installation makes an environment that answers the probe."""

    def install(environment: Environment, *arguments: str | Path, hint: str = "") -> None:
        environment.python.unlink(missing_ok=True)
        stand_in(environment.python.parent, "python", toolchain_of(CK))

    monkeypatch.setattr(executor, "pip_install", install)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3.11").symlink_to(sys.executable)
    made = prepare_rocm_python(CK, known(tmp_path))
    assert made.is_file()
    local, own = LocalExecutor(known(tmp_path)), Environment(tmp_path / "own")
    monkeypatch.setattr(executor, "make_build_environment", lambda _: own)
    assert local.prepare_host(TRITON, ignore_progress).python == own.python, "Triton needs no torch"
    local.discard_host(replace(CK, torch="2.8.0"))
    assert made.is_file()
    for _ in range(2):  # removing it again is no error
        local.discard_host(CK)
        assert not made.exists()
