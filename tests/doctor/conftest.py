"""What the tests of installs share: a Python that has nothing, and a folder that it looks into."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_installs import Site
from wheelfactory.build.environments import make_empty_environment


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without any package."""
    return make_empty_environment(tmp_path_factory.mktemp("bare") / "env").python


@pytest.fixture
def site(bare_python: Path, tmp_path: Path) -> Site:
    """An empty folder of packages, and a Python that looks into nothing else."""
    return Site(tmp_path / "site", bare_python)
