"""What the tests of the slow gates share: a cache with environments and no proofs."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_folder import file_lock
from wheelfactory.build.environments import make_build_environment, make_numpy_environment, make_triton_environment


@pytest.fixture
def bare_cache(cache: Path, tmp_path: Path) -> Path:
    """The cache with what the gates install already there, and nothing else in it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    with file_lock(cache, "environments"):
        environments = (
            make_build_environment(cache),
            make_numpy_environment(cache),
            *(make_triton_environment(cache, version) for version in ("3.7.1", "3.5.1", "3.4.0")),
        )
    for made in environments:
        (folder / made.folder.name).symlink_to(made.folder)
    return folder
