"""A registry, and an index of torch, for the tests of what is refreshed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from container_registry import ContainerRegistry, running_registry
from matrix.refresh.torch_pages import TorchPages, serving_pages


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
