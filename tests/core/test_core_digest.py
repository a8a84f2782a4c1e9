"""One content has one sha256, however large the file."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from wheelfactory.core.digest import SHA256, content_key, file_sha256


def test_it_is_that_of_all_bytes_of_the_file(tmp_path: Path) -> None:
    for size in (
        0,
        1,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
    ):
        data = os.urandom(size)
        (tmp_path / "file").write_bytes(data)
        assert file_sha256(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_a_file_that_is_not_there_has_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_sha256(tmp_path / "file")


def test_its_form_is_64_digits() -> None:
    digest = hashlib.sha256(b"").hexdigest()
    assert re.fullmatch(SHA256, digest)
    assert not any(re.fullmatch(SHA256, text) for text in (digest[1:], digest + "0", digest.upper(), "g" * 64))


def test_what_is_kept_is_named_by_its_content_as_text_or_bytes() -> None:
    assert content_key("torch") == content_key(b"torch") == hashlib.sha256(b"torch").hexdigest()[:16]
