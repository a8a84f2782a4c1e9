"""Adds what validations found on GPUs to the rows of the wheels that they ran; as with a yank, no file changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wheelfactory.core.errors import PublishError
from wheelfactory.gpu.validate.report import Validated, Validation
from wheelfactory.release.evidence import Evidence, evidence_of, with_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.transaction import Publisher


def add_evidence(publisher: Publisher, validations: Iterable[Validation]) -> tuple[WheelRow, ...]:
    """Commit the rows with what these validations found, each at the wheel with its sha256; gives all rows.

    Of several for one wheel, arch and mode the newest stays. Raises `InputError` for one that is no evidence, and
    `PublishError` for one of a file that is not published, or if newer evidence is; nothing is committed then.
    """
    rows = {row.filename: row for row in publisher.rows()}
    for validation in sorted(validations, key=lambda validation: validation.time):
        piece = evidence_of(validation)
        row = _row_of(validation.validated, tuple(rows.values()))
        _require_newer(piece, row)
        rows[row.filename] = row.model_copy(update={"evidence": with_evidence(row.evidence, piece)})
    changed = tuple(rows.values())
    publisher.commit(changed)
    return changed


def _row_of(validated: Validated, rows: Sequence[WheelRow]) -> WheelRow:
    for row in rows:
        if row.sha256 == validated.sha256:
            return row
    name = validated.filename or f"{validated.project} {validated.version}"
    if any(row.filename == validated.filename for row in rows):
        raise PublishError("validated with other bytes than are published", name, "validate the file that is published")
    raise PublishError("not published, so nothing can be added to it", name, "publish the wheel first")


def _require_newer(piece: Evidence, row: WheelRow) -> None:
    for held in row.evidence:
        if held.key == piece.key and held.time > piece.time:
            which = f"{row.filename} on {piece.arch} ({held.time:%Y-%m-%d %H:%M})"
            raise PublishError("newer evidence is published", which, "leave this report out, or validate again")
