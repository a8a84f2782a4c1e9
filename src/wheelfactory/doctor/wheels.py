"""The bytes of a manifest -> the wheels that it lists; whatever the bytes are, an `InputError` at worst.

Lighter than `wheelfactory.release.manifest`, which needs packages: it reads what a user chooses by, and passes over
fields that it does not know, as a doctor that was saved may be older than the manifest. What is read ends in commands
and on a terminal, so no text is taken that could do anything there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.gpus import by_generation
from wheelfactory.core.label import Label
from wheelfactory.core.row import has_form


@dataclass(frozen=True)
class Wheel:
    """A published wheel, as far as one chooses by it."""

    project: str
    version: str
    filename: str
    url: str
    """Where the file is, whole, with ``%2B`` for ``+``."""
    sha256: str
    size: int
    requires_python: str = ""
    published: str = ""
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


def read_wheels(data: bytes, which: str, base: str) -> tuple[Wheel, ...]:
    """The wheels of a manifest's bytes. `which` names it in errors; `base` is the address of the folder it is in.

    Raises `InputError` with `which` and the line for a row that is none.
    """
    if data.lstrip()[:1] == b"<":
        raise InputError("not a manifest but a page", which, "name the site whose manifest.jsonl it is, or that file")
    lines = data.splitlines()  # of bytes, because text also ends lines at U+2028 and the like
    wheels = []
    for number, line in enumerate(lines, 1):
        try:
            wheels.append(_wheel(json.loads(line), base))
        except (ValueError, TypeError, KeyError, RecursionError, InputError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error) or "cannot be read"
            place = f"{which}:{number}: {said.encode('ascii', 'backslashreplace').decode('ascii')[:200]}"
            raise InputError("not a manifest row", place, "it may be damaged, or cut off; get it again") from None
    return tuple(wheels)


def _wheel(row: object, base: str) -> Wheel:
    if not isinstance(row, dict):
        raise TypeError("not a JSON object")
    filename = _checked(row["filename"], "filename")
    cell, label, size, abi = row.get("cell"), row.get("label"), row["size"], row.get("cxx11_abi")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise TypeError("size is not one")
    if abi is not None and not isinstance(abi, bool):
        raise TypeError("cxx11_abi is neither true nor false")
    return Wheel(
        project=_checked(row["project"], "project"),
        version=_checked(row["version"], "version"),
        filename=filename,
        url=_address(row.get("url"), base, filename),
        sha256=_checked(row["sha256"], "sha256"),
        size=size,
        requires_python=_text(row.get("requires_python") or ""),
        published=_text(row.get("published") or ""),
        yanked=None if row.get("yanked") is None else _text(row["yanked"]),
        cell=None if cell is None else Cell.parse(_text(cell)),
        label=None if label is None else Label.parse(_text(label)),
        archs=tuple(_checked(arch, "offload_archs") for arch in _list(row.get("offload_archs"))),
        cxx11_abi=abi,
        glibc=None if row.get("glibc") is None else _checked(row["glibc"], "glibc"),
        gates=tuple(_gate(gate) for gate in _list(row.get("gates"))),
        verified_on=tuple(sorted(set(_verified_archs(row)), key=by_generation)),
    )


def _checked(value: object, field: str) -> str:
    if not has_form(field, value):
        raise ValueError(f"{field} is not one")
    return str(value)


def _text(value: object) -> str:
    """A text without anything that a terminal would act on."""
    if not isinstance(value, str):
        raise TypeError("a text is something else")
    return "".join(character if character.isprintable() else " " for character in value)


def _list(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError("a list is something else")
    return value


def _gate(value: object) -> tuple[str, str]:
    if not isinstance(value, dict):
        raise TypeError("a gate is not one")
    return _text(value["gate"]), _text(value["status"])


def _verified_archs(row: Mapping[str, object]) -> Iterator[str]:
    """By evidence of AMD's GPUs that is not of the foreign-GPU test mode, and by a ``gpu`` gate that passed."""
    for piece in _list(row.get("evidence")):
        if isinstance(piece, dict) and piece.get("vendor") == "amd" and piece.get("dropped_launch_options") is None:
            yield _plain(piece.get("arch"))
    for gate in _list(row.get("gates")):
        versions = gate.get("versions") if isinstance(gate, dict) and _gate(gate) == ("gpu", "passed") else None
        if isinstance(versions, dict) and "gpu" in versions:
            yield _plain(versions["gpu"])


def _plain(arch: object) -> str:
    """An offload arch without its features."""
    return _checked(arch, "arch").partition(":")[0]


def _address(url: object, base: str, filename: str) -> str:
    """Where a wheel is; beside the manifest, in ``wheels/``, if its row does not say."""
    if url is None:
        return f"{base.rstrip('/')}/wheels/{quote(filename)}"
    text = _text(url)
    if urlsplit(text).scheme not in ("http", "https", "file") or re.search(r"[\s#\\\"'<>^`{|}]", text):
        raise ValueError("url is not one")
    return text.replace("+", "%2B")
