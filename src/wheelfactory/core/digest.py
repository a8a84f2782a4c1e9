"""SHA-256 digests of files and cache keys.

Also runs inside the build container, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from wheelfactory.core.errors import VerificationError

SHA256 = "[0-9a-f]{64}"
"""A regular expression for a sha256 in hex."""


def file_sha256(path: Path) -> str:
    """Compute the sha256 of a file in hex. Raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):  # in chunks: an image or an archive can be larger than memory
            digest.update(chunk)
    return digest.hexdigest()


def files_sha256(files: Iterable[tuple[str, bytes]]) -> str:
    """Compute one sha256 over the names and contents of files, in this order, in hex."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def folder_sha256(folder: Path) -> str:
    """Compute one sha256 over the paths and contents of the files below a folder; empty if there are none.

    Hidden files do not count, as in an artifact of actions/upload-artifact.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    lines = [f"{file_sha256(paths[name])}  {name}\n" for name in sorted(paths) if "/." not in f"/{name}"]
    return hashlib.sha256("".join(lines).encode()).hexdigest() if lines else ""


def content_key(content: str | bytes) -> str:
    """Compute a cache key: the first 16 hex digits of the sha256 of the inputs."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def require_sealed(artifact: str, sha256: str, folder: Path) -> None:
    """Raise `VerificationError` unless the folder of an artifact has the digest that the job that made it named."""
    found = folder_sha256(folder)
    if found != sha256:
        which = f"artifact {artifact} has {found or 'no file'}, its job made {sha256 or 'none'}"
        hint = "re-run all jobs; if this repeats, find the job that replaced the artifact, and why"
        raise VerificationError("not the artifact that its job made", which, hint)
