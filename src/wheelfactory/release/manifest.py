"""The manifest: one JSON line a wheel, the only store; every page is generated from it and none is read back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pydantic_core import PydanticSerializationError

from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.files import read_file
from wheelfactory.core.gpus import arch_sort_key
from wheelfactory.core.label import Label
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.row import ROW_FORMAT, parse_lines
from wheelfactory.release.evidence import Evidence
from wheelfactory.verify.result import GateResult, Status

MANIFEST_NAME = "manifest.jsonl"

_RESTORE = "the manifest is written by `wheelfactory publish`; restore it from the release"


class WheelRow(FrozenModel):
    """A published wheel: what an index needs, what a person chooses by, and how it was verified."""

    project: str
    """The normalized project name: ``flash-attn``, or a dependency that the index carries."""
    version: str
    filename: str
    sha256: str
    size: int
    """Bytes."""
    requires_python: str
    metadata_sha256: str
    """Of the ``.metadata`` file beside the wheel, byte for byte its METADATA."""
    published: datetime
    """When it first was published, UTC."""
    yanked: str | None = None
    """Why it must not be installed any more, or None."""
    cell: str | None = None
    """The cell id; None for a dependency."""
    label: str | None = None
    offload_archs: tuple[str, ...] = ()
    cxx11_abi: bool | None = None
    glibc: str | None = None
    """The oldest glibc it runs on; None for a wheel without compiled code."""
    source: str | None = None
    gates: tuple[GateResult, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    """Validations on GPUs, added after it was published; one for each arch and mode."""
    url: str | None = None
    """Where the file is; None in a release itself, whose files are beside its manifest."""

    @property
    def index_key(self) -> tuple[str, str, str] | None:
        """The index that lists it, as folder names: ``("rocm64", "torch2.9", "ck")``; None for every index."""
        if self.label is None:
            return None
        label = Label.parse(self.label)
        return label.rocm_text, label.torch_text, str(label.backend)


def read_manifest(path: Path) -> tuple[WheelRow, ...]:
    """The rows of a manifest, or of the one in a release directory; none if a directory has none yet.

    Raises `InputError` with file and line for a row that is none.
    """
    if path.is_dir():
        path = path / MANIFEST_NAME
        if not path.exists():
            return ()
    if not path.exists():
        raise InputError("no such manifest", str(path), "name a manifest file or a release directory")
    return parse_rows(read_file(path, InputError("cannot read", str(path), _RESTORE)), str(path))


def parse_rows(data: bytes, which: str) -> tuple[WheelRow, ...]:
    """The rows of a manifest's bytes; `which` names it in errors.

    Raises `InputError` with `which` and the line for a row that is none.
    """
    places = parse_lines(data, InputError("not a manifest row", which, _RESTORE))
    return tuple(parse_model(WheelRow, row, place) for place, row in places)


def manifest_bytes(rows: Iterable[WheelRow]) -> bytes:
    """The manifest of these rows in the newest format, sorted by file name: the same rows give the same bytes.

    It is read back first. Raises `PublishError` if a reader would refuse it, or see other rows than these: such a
    manifest would stop every command that reads it.
    """
    ordered = tuple(sorted(rows, key=lambda row: row.filename))
    try:
        data = b"".join(map(_line, ordered))
        read = parse_rows(data, MANIFEST_NAME)
    except (InputError, PydanticSerializationError) as error:
        raise _unwritable(str(error)) from None
    for row, found in zip(ordered, read, strict=True):
        if row != found:
            raise _unwritable(f"{row.filename} would read back as another row")
    return data


def _unwritable(why: str) -> PublishError:
    return PublishError(
        "cannot be written as a manifest", why, "nothing was changed; correct what that row is made from"
    )


def has_row(manifest: bytes, row: WheelRow) -> bool:
    """Whether the bytes of a manifest have this very row, in the newest format or in the first; nothing is parsed."""
    newest = _line(row)
    first = b"{" + newest.removeprefix(_FORMAT_KEY)
    return any(manifest.startswith(line) or b"\n" + line in manifest for line in (newest, first))


_FORMAT_KEY = b'{"format":%d,' % ROW_FORMAT


def _line(row: WheelRow) -> bytes:
    """A row's line. One without evidence does not name it, as before there was any."""
    # without warnings: what is not as its type says does not read back
    text = row.model_dump_json(exclude=None if row.evidence else {"evidence"}, warnings=False)
    return _FORMAT_KEY + text.removeprefix("{").encode() + b"\n"


def published_cells(rows: Iterable[WheelRow]) -> frozenset[str]:
    """The cell ids that have a published wheel; a yanked one counts, because its file name is taken for good."""
    return frozenset(row.cell for row in rows if row.cell)


def verified_archs(row: WheelRow) -> tuple[str, ...]:
    """The offload archs of AMD whose GPUs computed what they should: by evidence, and by a ``gpu`` gate that passed."""
    archs = {piece.arch for piece in row.evidence if piece.is_amd_proof}
    archs |= {gate.versions["gpu"].partition(":")[0] for gate in passed_gpu_gates(row)}
    return tuple(sorted(archs, key=arch_sort_key))


def passed_gpu_gates(row: WheelRow) -> tuple[GateResult, ...]:
    """The ``gpu`` gates that a wheel passed before it was published, with the arch as ``gpu`` among their versions."""
    passed = (gate for gate in row.gates if gate.gate == "gpu" and gate.status is Status.PASSED)
    return tuple(gate for gate in passed if "gpu" in gate.versions)
