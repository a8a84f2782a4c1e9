"""Parse the wheels of a manifest; malformed input raises `InputError` and nothing else.

Unlike `wheelfactory.release.manifest` this needs no packages, reads only the fields needed to choose a wheel, and
ignores unknown fields, because a saved doctor can be older than the manifest. Both share the rules of
`wheelfactory.core.row`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.core.published import is_amd_proof, names_local_file, sort_proved_archs, wheel_url
from wheelfactory.core.row import parse_lines


@dataclass(frozen=True)
class PublishedWheel:
    """A published wheel: the manifest fields needed to choose it."""

    project: str
    version: str
    filename: str
    url: str
    """The absolute URL of the file, with ``%2B`` for ``+``."""
    sha256: str
    size: int
    requires_python: str
    published: str
    yanked: str | None = None
    cell: Cell | None = None
    label: Label | None = None
    """None for a dependency, like `cell`."""
    archs: tuple[str, ...] = ()
    cxx11_abi: bool | None = None
    glibc: str | None = None
    gates: tuple[tuple[str, str], ...] = ()
    """Each gate and its status: ``passed``, ``failed``, ``not run``."""
    torch_symbols: tuple[str, ...] = ()
    """The symbols of torch that a CK wheel needs; empty for one that was published without the list."""
    other_torches: tuple[str, ...] = ()
    """Other minor versions of torch that define these symbols (`wheelfactory.release.manifest.WheelRow`)."""
    verified_on: tuple[str, ...] = ()
    """Archs of the AMD GPUs on which its results were correct (`wheelfactory.release.manifest.verified_archs`)."""

    @property
    def built(self) -> Label:
        """What it was built for; only of a flash-attn, which has a label (`find_fit` keeps no other wheel)."""
        assert self.label
        return self.label

    @property
    def python_tag(self) -> str | None:
        """``cp311``, ``cp313t``; None for a wheel for any Python."""
        # the ABI tag, because the python tag of cp313t is cp313
        abi = self._tags[1]
        return None if abi == "none" else abi

    @property
    def machine(self) -> str | None:
        """``x86_64``; None for a wheel for any machine."""
        platform = self._tags[2]
        match = re.search(r"(?:linux|manylinux\d+|manylinux_\d+_\d+)_(\w+)$", platform.split(".")[0], re.ASCII)
        return match[1] if match else None

    @property
    def _tags(self) -> list[str]:
        return self.filename[: -len(".whl")].split("-")[-3:]


def parse_wheels(data: bytes, source_name: str, base: str) -> tuple[PublishedWheel, ...]:
    """Parse a manifest. `source_name` names it in errors; `base` is the URL of its directory.

    Raises InputError with `source_name` and the line number for an invalid row (`wheelfactory.core.row.parse_lines`).
    """
    if data.lstrip()[:1] == b"<":
        hint = "pass the address of the site or of its manifest.jsonl"
        raise InputError("not a manifest but an HTML page", source_name, hint)
    refusal = InputError("not a manifest row", source_name, "the file may be damaged or truncated; download it again")
    return tuple(_wheel(row, base, place) for place, row in parse_lines(data, refusal))


def _wheel(row: Mapping[str, Any], base: str, place: InputError) -> PublishedWheel:
    cell, label, url = row.get("cell"), row.get("label"), row.get("url")
    if names_local_file(url, base):
        raise InputError(place.what, f"{place.which}: url: a file on another machine", place.hint)
    same = ("project", "version", "filename", "sha256", "size", "requires_python", "published")
    values = {name: row[name] for name in same}
    values |= {name: row.get(name) for name in ("yanked", "cxx11_abi", "glibc")}
    values |= {name: tuple(row.get(name, ())) for name in ("torch_symbols", "other_torches")}
    return PublishedWheel(
        **values,
        url=wheel_url(row["filename"], url, base).replace("+", "%2B"),
        cell=None if cell is None else Cell.parse(cell),
        label=None if label is None else Label.parse(label),
        archs=tuple(row.get("offload_archs", ())),
        gates=tuple((gate["gate"], gate["status"]) for gate in row.get("gates", ())),
        verified_on=sort_proved_archs(_proved_archs(row)),
    )


def _proved_archs(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield archs from AMD evidence outside the non-AMD GPU test mode, and from a passed ``gpu`` gate."""
    for piece in row.get("evidence", ()):
        if is_amd_proof(piece.get("vendor"), piece.get("dropped_launch_options")):
            yield piece["arch"]
    for gate in row.get("gates", ()):
        if (gate["gate"], gate["status"]) == ("gpu", "passed") and "gpu" in gate.get("versions", {}):
            yield gate["versions"]["gpu"]
