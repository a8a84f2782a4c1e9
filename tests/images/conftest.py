"""A registry for the tests of images."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from container_registry import ContainerRegistry, running_registry


@pytest.fixture
def hub() -> Iterator[ContainerRegistry]:
    """A container registry on loopback, empty."""
    with running_registry() as registry:
        yield registry
