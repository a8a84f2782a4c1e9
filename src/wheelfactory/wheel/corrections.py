"""What the factory changes in upstream's files, what it adds to a Triton wheel, and which options wheels refuse.

activation/ has the added files, corrections.yaml each corrected line with its reason, and options.yaml the refused
options. By the added module a Triton wheel works without a variable; why a module and not a ``.pth`` file or a patch:
docs/explanation/activation.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import content_key, file_sha256
from wheelfactory.core.models import FrozenModel
from wheelfactory.wheel.read import Wheel

EXTENSION_MODULE = "flash_attn_2_cuda"
"""The compiled module that `flash_attn` imports for CK; upstream kept its CUDA name on ROCm."""

ACTIVATION_MODULE = f"{EXTENSION_MODULE}.py"
"""The file added to a Triton wheel. Python prefers a compiled module of the same name in the same folder."""

_FOLDER = Path(__file__).with_name("activation")


class Line(FrozenModel):
    """The new text of a line, and the fault that it removes."""

    reason: str
    text: str


class Correction(FrozenModel):
    """The corrected lines of a file, by number from 1; they apply to a file with exactly this sha256."""

    file: str
    sha256: str
    lines: Mapping[int, Line]
    adds: tuple[str, ...] = ()
    """The names of files in activation/ that the lines import; they join the corrected file in its folder."""

    def apply(self, data: bytes) -> bytes:
        """Return the corrected file."""
        lines = data.decode().split("\n")
        for number, line in self.lines.items():
            lines[number - 1] = line.text
        return "\n".join(lines).encode()


@cache
def read_corrections() -> tuple[Correction, ...]:
    """Read corrections.yaml."""
    text = (_FOLDER / "corrections.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Correction, ...]).validate_python(yaml.safe_load(text), strict=False)


def corrections_id() -> str:
    """Return a digest of all corrections and the files that they add."""
    files = (Path(__file__), *sorted(path for path in _FOLDER.iterdir() if path.is_file()))
    return content_key("\n".join(map(file_sha256, files)))


def added_members(cell: Cell) -> dict[str, bytes]:
    """Return the module that the factory adds to the finished wheel of a cell, by member name."""
    if cell.backend is Backend.CK:
        return {}
    name = "checked_aiter.py" if cell.uses_aiter else ACTIVATION_MODULE
    return {ACTIVATION_MODULE: (_FOLDER / name).read_bytes()}


def corrected_members(wheel: Wheel) -> dict[str, bytes]:
    """Return the corrected and added files of a raw wheel, by member name."""
    members = {}
    for correction in _corrections_of(wheel):
        folder = correction.file.rpartition("/")[0]
        members[correction.file] = correction.apply(wheel.read(correction.file))
        members |= {f"{folder}/{name}": (_FOLDER / name).read_bytes() for name in correction.adds}
    return members


def corrected_lines(wheel: Wheel) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the corrected lines of a raw wheel, by member name, for the build record."""
    return {correction.file: tuple(correction.lines) for correction in _corrections_of(wheel)}


def correct_sources(tree: Path) -> None:
    """Correct the C++ files of unpacked sources; Python files are corrected in the wheel."""
    for correction in read_corrections():
        path = tree / correction.file
        if correction.file.startswith("csrc/") and path.is_file() and file_sha256(path) == correction.sha256:
            path.write_bytes(correction.apply(path.read_bytes()))


def _corrections_of(wheel: Wheel) -> tuple[Correction, ...]:
    known = [one for one in read_corrections() if one.file in wheel.sizes]
    found = zip(known, wheel.read_members(one.file for one in known), strict=True)
    return tuple(one for one, (_, content) in found if hashlib.sha256(content).hexdigest() == one.sha256)


class Options(FrozenModel):
    """The options of all wheels."""

    wheels: Mapping[str, str]
    """A pattern of releases with backends, ``fa2.8.3-triton``, for each kind of wheel; the first match counts."""
    refused: Mapping[str, tuple[str, ...]]
    """The kinds of wheels that refuse an option, for each option."""


@cache
def read_options() -> Options:
    """Read options.yaml."""
    text = (_FOLDER / "options.yaml").read_text(encoding="utf-8")
    return Options.model_validate(yaml.safe_load(text), strict=False)


def refused_options(cell: Cell) -> tuple[str, ...]:
    """Return the options for which the wheel of a cell raises an error."""
    return options_refused_by(cell.flash_attn, cell.backend)


def options_refused_by(flash_attn: str, backend: Backend) -> tuple[str, ...]:
    """Return the options for which the wheels of a release and a backend raise an error."""
    options, name = read_options(), f"fa{flash_attn}-{backend}"
    kind = next((kind for kind, pattern in options.wheels.items() if fnmatch(name, pattern)), None)
    return tuple(option for option, kinds in options.refused.items() if kind in kinds)
