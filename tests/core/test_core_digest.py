"""One content has one sha256, however large the file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from wheelfactory.core.digest import content_key, file_sha256


def test_the_digest_covers_all_bytes_of_the_file(tmp_path: Path) -> None:
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        data = os.urandom(size)
        (tmp_path / "file").write_bytes(data)
        assert file_sha256(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_a_cache_key_depends_on_the_content_not_on_its_type() -> None:
    assert content_key("torch") == content_key(b"torch") == hashlib.sha256(b"torch").hexdigest()[:16]
