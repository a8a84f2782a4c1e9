"""Real cells built in containers: the same bytes as on this machine, and a wheel that fits beside AMD's torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from container_images import AMDS_TORCH, make_amds_pytorch
from container_project import AMDS_CELL, CELL, write_matrix
from real_kernels import append_kernels, keep_source, pack_source
from rocm_machine import Machine, make_machine
from wheelfactory.build.engine import Engine
from wheelfactory.release.manifest import read_manifest

pytestmark = pytest.mark.slow

NAME = "flash_attn-2.8.3+rocm72torch2.13triton-1-py3-none-any.whl"


@pytest.fixture(scope="module")
def machine(engine: Engine, cell_image: str, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One with an engine, where no cell was built yet."""
    return make_machine(
        tmp_path_factory.mktemp("contained") / "cache", cache, {**os.environ, "DOCKER_HOST": engine.url}
    )


@pytest.fixture(scope="module")
def wheel(machine: Machine, matrix_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the command makes in a container."""
    dest = tmp_path_factory.mktemp("dist")
    done = machine.run("build", CELL.id, "--executor", "docker", "--matrix", matrix_file, "--dest", dest)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{dest / NAME}\n"
    return dest / NAME


def test_setup_py_ran_in_the_container(machine: Machine, wheel: Path, cell_image: str) -> None:
    first = (machine.cache / "logs" / f"{CELL.id}.log").read_text().partition("\n")[0]
    assert cell_image in first


def test_it_is_byte_for_byte_the_wheel_that_this_machine_makes(wheel: Path, triton_wheel: Path) -> None:
    assert (triton_wheel.name, triton_wheel.read_bytes()) == (NAME, wheel.read_bytes())


def test_nothing_else_is_left_where_it_was_built(machine: Machine, wheel: Path) -> None:
    assert {path.name for path in machine.cache.iterdir() if not path.is_symlink()} == {"logs", "raw"}
    assert [path.name for path in wheel.parent.iterdir()] == [NAME]


@pytest.fixture(scope="module")
def release(
    machine: Machine, engine: Engine, cell_image: str, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """An image whose torch says that it is AMD's, and a release with the wheel for it, made by one command.

    It is on `cell_image`, so that what a build image needs is there; the wheel has a few of upstream's kernels.
    """
    tag, folder = make_amds_pytorch(engine.client, cell_image, engine.build_network), tmp_path_factory.mktemp("amds")
    own = Machine(folder / "cache", machine.environ)
    source = keep_source(pack_source(cache, folder, append_kernels()), own.cache, cache)
    for name in ("proofs", "plain"):
        (own.cache / name).symlink_to(cache / name)
    matrix = write_matrix(folder / "matrix.yaml", tag, source)
    options = ("--executor", "docker", "--matrix", matrix, "--dest", folder / "release")
    done = own.run("run", "--only", AMDS_CELL.id, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return tag, folder / "release"


def test_a_wheel_for_amds_torch_is_verified_in_the_image_and_published(release: tuple[str, Path]) -> None:
    (row,) = (row for row in read_manifest(release[1]) if row.cell)
    assert (row.cell, row.label) == (AMDS_CELL.id, "rocm72torch2.13amd")
    gates = {gate.gate: gate for gate in row.gates}
    assert {str(gate.status) for gate in row.gates if gate.required} == {"passed"}
    assert gates["import"].detail == f"torch {AMDS_TORCH}"
    assert gates["symbols"].versions["torch"] == AMDS_TORCH


def test_pip_installs_it_beside_that_torch_and_the_doctor_knows_both(engine: Engine, release: tuple[str, Path]) -> None:
    tag, folder = release
    shell = """
        set -e
        pip install --quiet --index-url file:///release/simple/rocm72/torch2.13amd/ck/ flash-attn
        python -c 'import flash_attn, torch; print(flash_attn.__version__, torch.__version__)'
        python /release/doctor.py --json /release || true # it names a problem: the missing GPU
    """
    volumes = {str(folder): {"bind": "/release", "mode": "ro"}}
    shown = engine.client.containers.run(tag, ["sh", "-c", shell], volumes=volumes, network_mode="none", remove=True)
    first, _, rest = shown.decode().partition("\n")
    assert first == f"2.8.3 {AMDS_TORCH}"
    found = json.loads(rest)
    installed = found["machine"]["flash_attn"]
    assert (installed["version"], installed["error"]) == ("2.8.3+rocm72torch2.13amd", "")
    assert found["machine"]["torch"]["version"] == AMDS_TORCH
    (miss,) = (miss for miss in found["near_misses"] if miss["cell"] == AMDS_CELL.id)
    assert miss["reasons"] == ["no GPU is visible, and it has code for some only"], "torch, Python and glibc fit"
