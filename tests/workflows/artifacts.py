"""Artifacts of a run, stored and returned as actions/upload-artifact 7 and actions/download-artifact 8 do.

The rules come from the sources of both actions. Other inputs are errors, so that no workflow relies on them.
"""

from __future__ import annotations

import fnmatch
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
        """Store the files of a folder but hidden ones, without modes and with links resolved, as a zip does."""
        name = inputs.get("name", "artifact")
        if not name or _BAD_IN_NAMES.search(name):
            raise ActionError(f"the artifact name {name!r} is empty or has a character that is not allowed")
        root = workspace / inputs["path"]
        if root.is_file() or re.search(r"[*?!\n]", inputs["path"]):
            raise ActionError(f"only a folder is supported: {inputs['path']}")
        files = [path for path in root.rglob("*") if path.is_file() and not _is_hidden(path.relative_to(root))]
        if not files:
            return
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
        patterns = list(_choices(inputs.get("pattern", "*")))
        found = sorted({path for path in stored.iterdir() for one in patterns if fnmatch.fnmatchcase(path.name, one)})
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


def _is_hidden(place: Path) -> bool:
    return any(part.startswith(".") for part in place.parts)


def _choices(pattern: str) -> Iterator[str]:
    """Yield the patterns that ``{a,b}`` stands for."""
    start, brace, rest = pattern.partition("{")
    choices, _, end = rest.partition("}")
    for choice in choices.split(","):
        yield from _choices(f"{start}{choice}{end}") if brace else [pattern]


def _unpack(kept: Path, target: Path) -> None:
    for path in filter(Path.is_file, kept.rglob("*")):
        place = target / path.relative_to(kept)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
