"""Says what of some distributions is installed, and whether its files are those of RECORD; prints JSON.

    python -I -B read_installed.py NAME...

The first of the names that is installed is read. Nothing of it is imported.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from importlib import metadata, util
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
"""Bytes that are read at once; an extension has hundreds of MB."""


def digest_of(path: Path, algorithm: str) -> str:
    """The digest of a file as RECORD writes it: base64 for URLs, without padding."""
    digest = hashlib.new(algorithm)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def trouble_of(file: metadata.PackagePath) -> str:
    """How a file differs from what RECORD says of it, or nothing."""
    path = Path(str(file.locate()))
    if not path.is_file():
        return "is not there"
    if file.hash and digest_of(path, file.hash.mode) != file.hash.value:
        return "was changed"
    return ""


def read(found: metadata.Distribution) -> dict[str, Any]:
    """What is asked of a distribution."""
    listed = found.files if found.read_text("RECORD") is not None else None
    troubles = {str(file): trouble_of(file) for file in listed or ()}
    return {
        "version": found.version,
        "requires": found.requires or [],
        "record": found.read_text("wheelfactory.json"),
        "direct_url": found.read_text("direct_url.json"),
        "files": None if listed is None else [str(Path(str(file.locate())).resolve()) for file in listed],
        "troubles": [f"{name} {trouble}" for name, trouble in troubles.items() if trouble],
    }


def main(names: list[str]) -> None:
    """The first that is there, and whether numpy is, which Triton's interpreter needs."""
    report: dict[str, Any] = {"project": None, "distribution": None, "numpy": util.find_spec("numpy") is not None}
    for name in names:
        found = next(iter(metadata.distributions(name=name)), None)
        if found:
            report |= {"project": name, "distribution": read(found)}
            break
    sys.stdout.write(f"\n{json.dumps(report)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
