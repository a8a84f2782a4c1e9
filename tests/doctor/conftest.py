"""Fixtures of the install tests: an empty Python and a package directory on its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_installs import Site
from wheelfactory.build.environments import make_empty_environment


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without packages."""
    return make_empty_environment(tmp_path_factory.mktemp("bare") / "env").python


@pytest.fixture
def site(bare_python: Path, tmp_path: Path) -> Site:
    """An empty package directory, the only one on its Python's path."""
    return Site(tmp_path / "site", bare_python)
