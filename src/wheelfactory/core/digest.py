"""A file -> its sha256: how the stages, and what runs beside the compiler, tell one content from another."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

SHA256 = re.compile("[0-9a-f]{64}")
"""The sha256 of something, in hex."""


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hex; the file may be larger than memory. Raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
