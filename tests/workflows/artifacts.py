"""Artifacts of a run, as actions/upload-artifact 7 and actions/download-artifact 8 keep and give them.

Both were read in their sources; what is not in the list of inputs here is refused, so that no workflow relies on it.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BAD_IN_NAMES = re.compile(r'[":<>|*?\r\n\\/]')
_BAD_IN_PATHS = re.compile(r'[":<>|*?\r\n]')


class ActionError(Exception):
    """Why an action fails its step."""


@dataclass(frozen=True)
class Store:
    """The artifacts of this run, and of the runs before it."""

    folder: Path
    earlier: Mapping[str, Path]
    """The folder of artifacts of each earlier run, by its id."""

    def upload(self, inputs: Mapping[str, str], workspace: Path) -> None:
        """Keep files under a name. A zip keeps no modes, and links as what they point to."""
        name = inputs.get("name", "artifact")
        if not name or _BAD_IN_NAMES.search(name):
            raise ActionError(f"the artifact name {name!r} is empty or has a character that is not allowed")
        root, files = _search(inputs["path"], workspace)
        hidden = inputs.get("include-hidden-files") == "true"
        files = [path for path in files if hidden or not _is_hidden(path.relative_to(root))]
        if not files:
            return _nothing_found(inputs)
        kept = self.folder / name
        if kept.exists() and inputs.get("overwrite") != "true":
            raise ActionError(f"409 Conflict: an artifact with the name {name} exists in this run already")
        shutil.rmtree(kept, ignore_errors=True)
        for path in files:
            place = str(path.relative_to(root))
            if _BAD_IN_PATHS.search(place):
                raise ActionError(f"{place!r} has a character that is not allowed in artifacts")
            (kept / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, kept / place)
        return None

    def download(self, inputs: Mapping[str, str], workspace: Path) -> str:
        """Give the files of artifacts; the folder they are in.

        One that is named must be there, and is unpacked into ``path``. Those that match a pattern are unpacked into
        folders of their names below it, unless they are merged or only ONE matches; if none does that is no error.
        """
        held = self._held(inputs)
        target = workspace / inputs.get("path", ".")
        if name := inputs.get("name"):
            if not (held / name).is_dir():
                raise ActionError(f"Artifact not found for name: {name}")
            _unpack(held / name, target)
            return str(target)
        pattern = inputs.get("pattern", "*")
        found = sorted(path for path in held.iterdir() if fnmatch.fnmatchcase(path.name, pattern))
        together = inputs.get("merge-multiple") == "true" or len(found) == 1
        for path in found:
            _unpack(path, target if together else target / path.name)
        return str(target)

    def _held(self, inputs: Mapping[str, str]) -> Path:
        run = inputs.get("run-id", "")
        if not run:
            return self.folder
        if not inputs.get("github-token"):
            raise ActionError("the artifacts of another run need github-token")
        if run not in self.earlier:
            raise ActionError(f"404 Not Found: there is no run {run}")
        return self.earlier[run]


def _nothing_found(inputs: Mapping[str, str]) -> None:
    if inputs.get("if-no-files-found", "warn") == "error":
        raise ActionError(f"No files were found with the provided path: {inputs['path']}")


def _search(text: str, workspace: Path) -> tuple[Path, list[Path]]:
    """The files, and the folder below which their places are kept.

    That is the part of the pattern before its first wildcard; of several patterns, the folder that all such have in
    common. A single file has its own folder.
    """
    patterns = [workspace / line.strip() for line in text.splitlines() if line.strip()]
    if any(line.strip().startswith("!") for line in text.splitlines()):
        raise ActionError(f"patterns that exclude are not known here: {text}")
    files = sorted({path for pattern in patterns for path in _matched(pattern)})
    roots = [_root(pattern) for pattern in patterns]
    if len(roots) == 1 and roots[0].is_file():
        return roots[0].parent, files
    return Path(os.path.commonpath(roots)), files


def _matched(pattern: Path) -> Iterator[Path]:
    root = _root(pattern)
    for path in [root] if root == pattern else root.glob(str(pattern.relative_to(root))):
        yield from filter(Path.is_file, [path, *path.rglob("*")])


def _root(pattern: Path) -> Path:
    plain = Path(pattern.anchor)
    for part in pattern.parts[1:]:
        if re.search(r"[*?[]", part):
            break
        plain /= part
    return plain


def _is_hidden(place: Path) -> bool:
    return any(part.startswith(".") for part in place.parts)


def _unpack(kept: Path, target: Path) -> None:
    for path in filter(Path.is_file, kept.rglob("*")):
        place = target / path.relative_to(kept)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
