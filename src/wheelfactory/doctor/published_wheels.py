"""The bytes of a manifest -> the wheels that it lists; whatever the bytes are, an `InputError` at worst.

Lighter than `wheelfactory.release.manifest`, which needs packages: it reads what a user chooses by, and passes over
fields that it does not know, as a doctor that was saved may be older than the manifest. What a row may say is the same
for both (`wheelfactory.core.row`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.gpus import arch_sort_key
from wheelfactory.core.label import Label
from wheelfactory.core.row import parse_lines


@dataclass(frozen=True)
class PublishedWheel:
    """A published wheel, as far as one chooses by it."""

    project: str
    version: str
    filename: str
    url: str
    """Where the file is, whole, with ``%2B`` for ``+``."""
    sha256: str
    size: int
    requires_python: str
    published: str
    yanked: str | None = None
    cell: Cell | None = None
    label: Label | None = None
    """None for a dependency, as `cell`."""
    archs: tuple[str, ...] = ()
    cxx11_abi: bool | None = None
    glibc: str | None = None
    gates: tuple[tuple[str, str], ...] = ()
    """What it was verified for, and how that ended: ``passed``, ``failed``, ``not run``."""
    verified_on: tuple[str, ...] = ()
    """The archs of AMD on whose GPUs it computed what it should (`wheelfactory.release.manifest.verified_on`)."""

    @property
    def python_tag(self) -> str | None:
        """``cp311``, ``cp313t``: its ABI tag, which tells those two apart; None for a wheel that any Python takes."""
        abi = self._tags[1]
        return None if abi == "none" else abi

    @property
    def machine(self) -> str | None:
        """``x86_64``; None for a wheel that any machine takes."""
        platform = self._tags[2]
        match = re.search(r"(?:linux|manylinux\d+|manylinux_\d+_\d+)_(\w+)$", platform.split(".")[0], re.ASCII)
        return match[1] if match else None

    @property
    def _tags(self) -> list[str]:
        return self.filename[: -len(".whl")].split("-")[-3:]


def parse_wheels(data: bytes, which: str, base: str) -> tuple[PublishedWheel, ...]:
    """The wheels of a manifest's bytes. `which` names it in errors; `base` is the address of the folder it is in.

    Raises `InputError` with `which` and the line for a row that is none (`wheelfactory.core.row.parse_lines`).
    """
    if data.lstrip()[:1] == b"<":
        raise InputError("not a manifest but a page", which, "name the site whose manifest.jsonl it is, or that file")
    refusal = InputError("not a manifest row", which, "it may be damaged, or cut off; get it again")
    return tuple(_wheel(row, base, place) for place, row in parse_lines(data, refusal))


def _wheel(row: Mapping[str, Any], base: str, place: InputError) -> PublishedWheel:
    cell, label, url = row.get("cell"), row.get("label"), row.get("url")
    if url and url.startswith("file:") and not base.startswith("file:"):
        raise InputError(place.what, f"{place.which}: url: a file of another machine", place.hint)
    return PublishedWheel(
        project=row["project"],
        version=row["version"],
        filename=row["filename"],
        url=(url or f"{base.rstrip('/')}/wheels/{quote(row['filename'])}").replace("+", "%2B"),
        sha256=row["sha256"],
        size=row["size"],
        requires_python=row["requires_python"],
        published=row["published"],
        yanked=None if row.get("yanked") is None else _shown(row["yanked"]),
        cell=None if cell is None else Cell.parse(cell),
        label=None if label is None else Label.parse(label),
        archs=tuple(row.get("offload_archs", ())),
        cxx11_abi=row.get("cxx11_abi"),
        glibc=row.get("glibc"),
        gates=tuple((_shown(gate["gate"]), _shown(gate["status"])) for gate in row.get("gates", ())),
        verified_on=tuple(sorted(set(_verified_archs(row)), key=arch_sort_key)),
    )


def _shown(text: str) -> str:
    """A text without what a terminal might not show as one character."""
    return "".join(character if character.isprintable() else " " for character in text)


def _verified_archs(row: Mapping[str, Any]) -> Iterator[str]:
    """By evidence of AMD's GPUs that is not of the non-AMD GPU test mode, and by a ``gpu`` gate that passed."""
    for piece in row.get("evidence", ()):
        if piece.get("vendor") == "amd" and piece.get("dropped_launch_options") is None:
            yield piece["arch"].partition(":")[0]
    for gate in row.get("gates", ()):
        if (gate["gate"], gate["status"]) == ("gpu", "passed") and "gpu" in gate.get("versions", {}):
            yield gate["versions"]["gpu"].partition(":")[0]
