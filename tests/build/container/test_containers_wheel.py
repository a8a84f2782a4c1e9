"""A real cell built in a container: the same bytes as on this machine, accepted by the gates, installed by pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from container_project import CELL
from rocm_machine import Done, Machine, make_machine
from wheelfactory.build.container.engine import Engine
from wheelfactory.build.environments import make_empty_environment

pytestmark = pytest.mark.slow

NAME = "flash_attn-2.8.3+rocm72torch2.13triton-1-py3-none-any.whl"


@pytest.fixture(scope="module")
def machine(engine: Engine, cell_image: str, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One with an engine, where no cell was built yet."""
    return make_machine(
        tmp_path_factory.mktemp("contained") / "cache", cache, {**os.environ, "DOCKER_HOST": engine.url}
    )


def build(machine: Machine, executor: str, matrix: Path, dest: Path) -> Done:
    return machine.run("build", CELL.id, "--executor", executor, "--matrix", matrix, "--dest", dest)


@pytest.fixture(scope="module")
def wheel(machine: Machine, matrix_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the command makes in a container."""
    dest = tmp_path_factory.mktemp("dist")
    done = build(machine, "docker", matrix_file, dest)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{dest / NAME}\n"
    return dest / NAME


def test_setup_py_ran_in_the_container(machine: Machine, wheel: Path, cell_image: str) -> None:
    first = (machine.cache / "logs" / f"{CELL.id}.log").read_text().partition("\n")[0]
    assert cell_image in first


def test_it_is_byte_for_byte_the_wheel_that_this_machine_makes(
    machine: Machine, wheel: Path, matrix_file: Path, cache: Path, tmp_path: Path
) -> None:
    here = make_machine(tmp_path / "cache", cache, machine.environ)
    done = build(here, "local", matrix_file, tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dist" / NAME).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("executor", ["local", "docker"])
def test_every_required_gate_accepts_it(machine: Machine, wheel: Path, matrix_file: Path, executor: str) -> None:
    done = machine.run("verify", wheel, "--cell", CELL.id, "--matrix", matrix_file, "--executor", executor)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NAME}: verified" in done.stdout


def test_pip_installs_it_and_its_files_belong_to_the_caller(wheel: Path, tmp_path: Path) -> None:
    environment = make_empty_environment(tmp_path / "venv")
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "install", "--no-deps", "--no-index"]
    done = subprocess.run([*pip, wheel], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (environment.site_packages / "flash_attn/__init__.py").is_file()
    state = wheel.stat()
    assert (state.st_uid, state.st_gid) == (os.getuid(), os.getgid())


def test_nothing_else_is_left_where_it_was_built(machine: Machine, wheel: Path) -> None:
    left = {path.name for path in machine.cache.iterdir() if not path.is_symlink()}
    assert {name for name in left if not name.startswith("env-")} == {"logs", "raw"}  # gates make environments
    assert [path.name for path in wheel.parent.iterdir()] == [NAME]
