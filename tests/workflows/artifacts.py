"""Artifacts of a run, stored and returned as actions/upload-artifact 7 and actions/download-artifact 8 do.

The rules come from the sources of both actions. Other inputs are errors, so that no workflow relies on them.
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
    """An action that fails its step."""


@dataclass(frozen=True)
class Store:
    """The artifacts of this run and of previous runs."""

    folder: Path
    previous: Mapping[str, Path]
    """Run id -> folder of its artifacts."""

    def upload(self, inputs: Mapping[str, str], workspace: Path) -> None:
        """Store files under a name, without modes and with links resolved, as a zip does."""
        name = inputs.get("name", "artifact")
        if not name or _BAD_IN_NAMES.search(name):
            raise ActionError(f"the artifact name {name!r} is empty or has a character that is not allowed")
        root, files = _search(inputs["path"], workspace)
        hidden = inputs.get("include-hidden-files") == "true"
        files = [path for path in files if hidden or not _is_hidden(path.relative_to(root))]
        if not files:
            return _nothing_found(inputs)
        target = self.folder / name
        if target.exists() and inputs.get("overwrite") != "true":
            raise ActionError(f"409 Conflict: an artifact with the name {name} exists in this run already")
        shutil.rmtree(target, ignore_errors=True)
        for path in files:
            place = str(path.relative_to(root))
            if _BAD_IN_PATHS.search(place):
                raise ActionError(f"{place!r} has a character that is not allowed in artifacts")
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / place)
        return None

    def download(self, inputs: Mapping[str, str], workspace: Path) -> str:
        """Unpack artifacts below ``path`` and return that folder.

        A named artifact must exist. Artifacts that match a pattern get a folder each, unless they are merged or only
        one matches; no match is not an error.
        """
        stored = self._run_folder(inputs)
        target = workspace / inputs.get("path", ".")
        if name := inputs.get("name"):
            if not (stored / name).is_dir():
                raise ActionError(f"Artifact not found for name: {name}")
            _unpack(stored / name, target)
            return str(target)
        pattern = inputs.get("pattern", "*")
        found = sorted(path for path in stored.iterdir() if fnmatch.fnmatchcase(path.name, pattern))
        together = inputs.get("merge-multiple") == "true" or len(found) == 1
        for path in found:
            _unpack(path, target if together else target / path.name)
        return str(target)

    def _run_folder(self, inputs: Mapping[str, str]) -> Path:
        run = inputs.get("run-id", "")
        if not run:
            return self.folder
        if not inputs.get("github-token"):
            raise ActionError("the artifacts of another run need github-token")
        if run not in self.previous:
            raise ActionError(f"404 Not Found: there is no run {run}")
        return self.previous[run]


def _nothing_found(inputs: Mapping[str, str]) -> None:
    if inputs.get("if-no-files-found", "warn") == "error":
        raise ActionError(f"No files were found with the provided path: {inputs['path']}")


def _search(text: str, workspace: Path) -> tuple[Path, list[Path]]:
    """Return the common folder and the files of upload patterns.

    The common folder is the part of a pattern before its first wildcard, or the common parent for several patterns.
    """
    patterns = [workspace / line.strip() for line in text.splitlines() if line.strip()]
    if any(line.strip().startswith("!") for line in text.splitlines()):
        raise ActionError(f"exclude patterns are not supported: {text}")
    files = sorted({path for pattern in patterns for path in _match(pattern)})
    roots = [_root(pattern) for pattern in patterns]
    if len(roots) == 1 and roots[0].is_file():
        return roots[0].parent, files
    return Path(os.path.commonpath(roots)), files


def _match(pattern: Path) -> Iterator[Path]:
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
