"""What the tests of the extended gates share: upstream's own code, and a cache with environments and no proofs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from turns import in_turn, made_once
from wheel_factory import read_zip
from wheelfactory.build import build_cell
from wheelfactory.cell import Cell
from wheelfactory.checkout import MATRIX
from wheelfactory.environments import build_environment, interpreter_environment, triton_environment
from wheelfactory.executor import LocalExecutor
from wheelfactory.host import Host
from wheelfactory.matrix import load_matrix
from wheelfactory.progress import unseen
from wheelfactory.workshop import Workshop


@pytest.fixture(scope="session")
def upstream(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The members of the Triton wheel of flash-attn 2.8.3, outside of dist-info."""
    workshop = Workshop(load_matrix(MATRIX), Host(cores=2, memory_gib=6), {}, cache)
    cell = Cell.parse("fa2.8.3-rocm7.2-torch2.13.0-py3-triton")

    def build(folder: Path) -> None:
        build_cell(workshop, LocalExecutor(workshop), cell, folder, unseen)

    (path,) = made_once(tmp_path_factory.getbasetemp(), "upstream", build).glob("*.whl")
    return {name: data for name, data in read_zip(path).items() if ".dist-info/" not in name}


@pytest.fixture
def bare_cache(cache: Path, tmp_path: Path) -> Path:
    """The cache with what the gates install already there, and nothing else in it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    with in_turn(cache, "environments"):
        environments = (
            build_environment(cache),
            interpreter_environment(cache),
            *(triton_environment(cache, version) for version in ("3.7.1", "3.5.1", "3.4.0")),
        )
    for made in environments:
        (folder / made.folder.name).symlink_to(made.folder)
    return folder
