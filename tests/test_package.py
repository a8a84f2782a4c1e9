"""The factory installed from a wheel, without a checkout: the same commands from an empty folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from pythons import find_python
from wheelfactory.build.environments import cpu_torch_options, cpu_torch_requirement
from wheelfactory.release.manifest import read_manifest

ROOT = Path(__file__).parents[1]
OWN = sys.version_info.minor
ONLY = "fa2.8.3-rocm7.2-torch2.13.0-py3-triton"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the files in git."""
    checkout, made = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", made, checkout], check=True)
    (path,) = made.glob("*.whl")
    return path


@pytest.fixture(scope="module", params=sorted({10, OWN, 13}))
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``wheelfactory`` in an environment with only the requirements of the wheel."""
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"there is no Python 3.{request.param} here")
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    # uv, because pip takes half a minute for each of the three
    install = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", folder / "bin/python")
    subprocess.run([*install, "--constraint", ROOT / "requirements/factory.txt", wheel], check=True)
    return folder / "bin/wheelfactory"


@cache
def of_checkout(command: str) -> str:
    """What a command of the checkout prints."""
    return call(Path(sys.executable), ROOT, "-m", "wheelfactory", command)


def call(program: Path, folder: Path, *arguments: str | Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _skip_without_torch(installed: Path) -> None:
    """A build needs torch for the CPU, which an index may have for this Python alone."""
    if (installed.parent / f"python3.{OWN}").exists():
        return
    wanted = cpu_torch_requirement()
    pip = (sys.executable, "-m", "pip", "--python", installed.with_name("python"))
    tried = (*pip, "install", "--dry-run", "--no-deps")
    if subprocess.run([*tried, wanted, *cpu_torch_options()], capture_output=True).returncode:
        pytest.skip(f"no index here has {wanted} for that Python")


def test_the_wheel_has_one_folder_beside_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"wheelfactory"}
    assert not [name for name in names if "/tests/" in name]


def test_version_and_matrix_are_those_of_the_checkout_and_a_matrix_in_the_current_folder_wins(
    installed: Path, tmp_path: Path
) -> None:
    for command in ("--version", "matrix"):
        assert call(installed, tmp_path, command) == of_checkout(command)
    shutil.copy(ROOT / "examples/seed-matrix.yaml", tmp_path / "matrix.yaml")
    shown = json.loads(call(installed, tmp_path, "matrix"))
    assert {cell["rocm-version"] for cell in shown["include"]} == {"6.1", "6.2"}


def test_it_plans_builds_verifies_and_publishes(installed: Path, tmp_path: Path, cache: Path) -> None:
    def files() -> dict[Path, int]:
        found = (path for path in installed.parents[1].rglob("*") if not path.is_dir())
        return {path: path.stat().st_mtime_ns for path in found if "__pycache__" not in path.parts}

    before = files()
    assert ONLY in call(installed, tmp_path, "plan", "--all", "--only", ONLY, "--cache", cache)
    _skip_without_torch(installed)
    call(installed, tmp_path, "run", "--quick", "--only", ONLY, "--dest", "site", "--cache", cache)
    assert [row.cell for row in read_manifest(tmp_path / "site") if row.cell] == [ONLY]
    assert [row for row in read_manifest(tmp_path / "site") if row.project == "flash-attention-amd"]
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert files() == before
