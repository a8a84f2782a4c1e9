"""A container registry and a torch index on loopback, and retries without pauses."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from container_registry import ContainerRegistry, running_registry
from scripts.refresh.torch_pages import TorchPages, serving_pages
from wheelfactory.core.files import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the command reads and writes."""
    folder = tmp_path / "checkout"
    for name in ("src", "scripts", "tests/data", ".github"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CHANGELOG.md", "README.md", "matrix.yaml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def hub() -> Iterator[ContainerRegistry]:
    """A container registry on loopback, empty."""
    with running_registry() as registry:
        yield registry


@pytest.fixture
def pages() -> Iterator[TorchPages]:
    """PyTorch's indexes on loopback, empty."""
    with serving_pages() as made:
        yield made


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a pause of urllib3; the clock of the servers still runs."""
    monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(sleep=lambda _: None, time=time.time))
