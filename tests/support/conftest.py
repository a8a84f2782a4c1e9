"""An index of torch for the tests of its refresh."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.torch_pages import TorchPages, serving_pages


@pytest.fixture
def pages() -> Iterator[TorchPages]:
    """PyTorch's indexes on loopback, empty."""
    with serving_pages() as made:
        yield made
