"""The manifest, one JSON line per wheel. It is the only store: every page is generated from it, none is read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pydantic_core import PydanticSerializationError

from wheelfactory.core.cell import FLASH_ATTN_FALLBACK, MAX_REPLACEMENTS, Cell, product_name
from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.files import read_file
from wheelfactory.core.label import FALLBACK_INDEX, IndexKey, Label
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.published import MANIFEST_NAME, build_key, sort_proved_archs, version_key
from wheelfactory.core.row import ROW_FORMAT, parse_lines
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.evidence import Evidence
from wheelfactory.verify.result import GateResult, Status

_RESTORE = "the manifest is written by `wheelfactory publish`; restore it from the release"


class WheelRow(FrozenModel):
    """A published wheel: what the index and the doctor need to know, and how it was verified.

    Field names are keys of published manifests, which other releases and doctor.py read: do not rename them.
    """

    project: str
    """The normalized project name: ``flash-attn``, or a dependency in the index."""
    version: str
    filename: str
    sha256: str
    size: int
    """Bytes."""
    requires_python: str
    metadata_sha256: str
    """The sha256 of METADATA, which is published beside the wheel as ``.metadata`` (PEP 658)."""
    published: datetime
    """The time of the first publish, UTC."""
    yanked: str | None = None
    """Why the wheel is yanked; None if it is not."""
    cell: str | None = None
    """The cell id; None for a dependency."""
    label: str | None = None
    offload_archs: tuple[str, ...] = ()
    cxx11_abi: bool | None = None
    glibc: str | None = None
    """The oldest glibc that the wheel runs on; None without compiled code."""
    source: str | None = None
    torch_symbols: tuple[str, ...] = ()
    """The symbols of torch that a CK wheel needs, so that a reader can ask another build of torch for them."""
    other_torches: tuple[str, ...] = ()
    """Other minor versions of the builder's torch for that ROCm that define all of these; nothing was run."""
    gates: tuple[GateResult, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    """GPU validations, added after publishing; one for each arch and mode."""
    url: str | None = None
    """The address of the file; None in a release itself, whose files are beside its manifest."""

    @property
    def product(self) -> str:
        """The name of its product; of a cell's wheel or a dependency, the project."""
        return product_name(self.project, self.version)

    @property
    def index_key(self) -> IndexKey | None:
        """The folders of the index that lists the wheel: ``("rocm64", "torch2.9", "ck")``; None if every index does."""
        if self.product == FLASH_ATTN_FALLBACK:
            return FALLBACK_INDEX
        return Label.parse(self.label).index_key if self.label else None


def read_manifest(path: Path) -> tuple[WheelRow, ...]:
    """Read a manifest file, or the manifest of a release directory, which may still be missing.

    Raises `InputError` with file and line for an invalid row.
    """
    if path.is_dir():
        path = path / MANIFEST_NAME
        if not path.exists():
            return ()
    if not path.exists():
        hint = "name a manifest file or a release directory; `wheelfactory run` makes one"
        raise InputError("no such manifest", str(path), hint)
    return parse_rows(read_file(path, InputError("cannot read", str(path), _RESTORE)), str(path))


def parse_rows(data: bytes, source_name: str) -> tuple[WheelRow, ...]:
    """Parse the bytes of a manifest; error messages refer to it as `source_name`.

    Raises `InputError` with the line number of an invalid row.
    """
    places = parse_lines(data, InputError("not a manifest row", source_name, _RESTORE))
    return tuple(parse_model(WheelRow, row, place) for place, row in places)


def manifest_bytes(rows: Iterable[WheelRow]) -> bytes:
    """Serialize rows in the newest format, sorted by file name: the same rows give the same bytes.

    Raises `PublishError` if the result would not read back as the same rows.
    """
    ordered = tuple(sorted(rows, key=lambda row: row.filename))
    try:
        data = b"".join(map(_line, ordered))
        # one bad row in a published manifest would stop every command that reads it
        read = parse_rows(data, MANIFEST_NAME)
    except (InputError, PydanticSerializationError) as error:
        raise _write_error(str(error)) from None
    for row, found in zip(ordered, read, strict=True):
        if row != found:
            raise _write_error(f"{row.filename} would read back as a different row")
    return data


def _write_error(reason: str) -> PublishError:
    hint = "nothing was changed; fix the wheel or the report behind this row"
    return PublishError("cannot write the manifest", reason, hint)


def has_row(manifest: bytes, row: WheelRow) -> bool:
    """Whether a manifest contains this exact row. It compares bytes and parses nothing."""
    return b"\n" + _line(row) in b"\n" + manifest


def _line(row: WheelRow) -> bytes:
    # no warnings for values of a wrong type: `manifest_bytes` reads the line back and refuses them
    return b'{"format":%d,' % ROW_FORMAT + row.model_dump_json(warnings=False).removeprefix("{").encode() + b"\n"


def available_cells(rows: Iterable[WheelRow], matrix: Matrix) -> frozenset[str]:
    """The ids of cells with a wheel of their current build (`build` in matrix.yaml) that can be installed.

    `rows` are those whose files exist (`transaction.held_rows`). Any other cell of a release is built again.
    """
    return frozenset(row.cell for row in current_rows(rows, matrix) if row.cell and row.yanked is None)


def count_foldable(rows: Iterable[WheelRow]) -> int:
    """How many wheels a kept one would replace, as it loads on their torch too (`WheelRow.other_torches`).

    Those are kept that load on the most torches, then those with the newest.
    """
    cells = [(Cell.parse(row.cell), row.other_torches) for row in rows if row.cell]
    served, foldable = set[Cell](), 0
    for cell, others in sorted(cells, key=lambda one: (len(one[1]), version_key(one[0].torch)), reverse=True):
        if replace(cell, torch=Label.from_cell(cell).torch_version) in served:
            foldable += 1
        else:
            served |= {replace(cell, torch=torch) for torch in others}
    return foldable


def next_replacements(rows: Iterable[WheelRow], matrix: Matrix) -> Mapping[str, int]:
    """By cell, which replacement of its wheels of the current build comes next; `rows` are all that were published."""
    following: dict[str, int] = {}
    for row in current_rows(rows, matrix):
        if row.cell:
            following[row.cell] = max(following.get(row.cell, 0), build_key(row.filename)[1] + 1)
    # after the last one, publishing refuses the name, which is published already
    return {cell: min(number, MAX_REPLACEMENTS) for cell, number in following.items()}


def current_rows(rows: Iterable[WheelRow], matrix: Matrix) -> tuple[WheelRow, ...]:
    """The rows without wheels of earlier builds."""
    return tuple(row for row in rows if not outdated_reason(row, matrix))


def outdated_reason(row: WheelRow, matrix: Matrix) -> str:
    """What the wheel of an earlier build lacks, by matrix.yaml; empty for a wheel of the current build."""
    release = matrix.flash_attn.get(Cell.parse(row.cell).flash_attn) if row.cell else None
    if release is None or release.build is None:
        return ""
    return release.build.reason if build_key(row.filename)[0] < int(release.build.number) else ""


def verified_archs(row: WheelRow) -> tuple[str, ...]:
    """The AMD archs on which the wheel computed correctly: by evidence, or by a passed ``gpu`` gate."""
    evidence = (piece.arch for piece in row.evidence if piece.is_amd_proof)
    return sort_proved_archs([*evidence, *(gate.versions["gpu"] for gate in passed_gpu_gates(row))])


def passed_gpu_gates(row: WheelRow) -> tuple[GateResult, ...]:
    """Return the passed ``gpu`` gates of a wheel; each has its arch in ``versions["gpu"]``."""
    passed = (gate for gate in row.gates if gate.gate == "gpu" and gate.status is Status.PASSED)
    return tuple(gate for gate in passed if "gpu" in gate.versions)
