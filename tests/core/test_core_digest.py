"""One content has one sha256, however large the file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from wheelfactory.core.digest import sha256_of


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_it_is_that_of_all_bytes_of_the_file(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_a_file_that_is_not_there_has_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sha256_of(tmp_path / "file")
