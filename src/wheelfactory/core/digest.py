"""A file -> its sha256: how the stages, and what runs beside the compiler, tell one content from another."""

from __future__ import annotations

import hashlib
from pathlib import Path

SHA256 = "[0-9a-f]{64}"
"""The form of a sha256 in hex, as a regular expression."""


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex; the file may be larger than memory. Raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def content_key(content: str | bytes) -> str:
    """The name that something is kept by: 16 hex digits of the sha256 of all that it is made from."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]
