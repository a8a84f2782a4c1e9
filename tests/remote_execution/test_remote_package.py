"""The distribution wheelfactory-remote-execution, built and put beside the factory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from wheelfactory.build.environments import make_build_environment, pip_wheel
from wheelfactory.core.files import ROOT, factory_version

SOURCES = ROOT / "packages/remote_execution"


@pytest.mark.slow
def test_pip_builds_it_for_this_version_of_the_factory_which_then_has_a_client(cache: Path, tmp_path: Path) -> None:
    shutil.copytree(SOURCES, tmp_path / "sources")
    (tmp_path / "wheels").mkdir()
    wheel = pip_wheel(make_build_environment(cache), tmp_path / "sources", tmp_path / "wheels", 1_700_000_000, {})
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (metadata,) = (tmp_path / "installed").glob("wheelfactory_remote_execution-*.dist-info/METADATA")
    assert f"\nRequires-Dist: wheelfactory=={factory_version()}\n" in metadata.read_text()

    program = "import wheelfactory_remote.cluster as it; print(it.__file__)"
    environ = {"PYTHONPATH": f"{tmp_path}/installed:{ROOT}/src"}
    found = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert found.stdout == f"{tmp_path}/installed/wheelfactory_remote/cluster.py\n"
