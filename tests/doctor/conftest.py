"""Fixtures: an empty Python with a package directory on its path, and a small release with its wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.releases import as_read, small_release
from doctor_installs import Site
from wheelfactory.build.environments import make_empty_environment
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.release.manifest import WheelRow


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without packages."""
    return make_empty_environment(tmp_path_factory.mktemp("bare") / "env").python


@pytest.fixture
def site(bare_python: Path, tmp_path: Path) -> Site:
    """An empty package directory, the only one on its Python's path."""
    return Site(tmp_path / "site", bare_python)


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[WheelRow, ...]:
    return small_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def wheels(rows: tuple[WheelRow, ...]) -> tuple[PublishedWheel, ...]:
    return as_read(rows)
