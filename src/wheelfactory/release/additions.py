"""What is added to a release: the row of a verified wheel, and the dependencies that each index must carry."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.build.fallback import FallbackProject, is_unknown_fallback, read_fallback_project
from wheelfactory.build.sources import fetch_file
from wheelfactory.core.cell import FALLBACK_NAME, Cell
from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import VerificationError
from wheelfactory.core.host import Host
from wheelfactory.core.progress import logger
from wheelfactory.matrix.facts import Dependency, Matrix
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import MANIFEST_NAME, WheelRow, read_manifest
from wheelfactory.release.transaction import Addition, Publisher
from wheelfactory.release.verified import unverified_reason
from wheelfactory.verify.gates import (
    FALLBACK_PUBLISH_GATES,
    PUBLISH_GATES,
    is_refused,
    verify,
    verify_fallback,
)
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.build_record import read_build_record
from wheelfactory.wheel.read import Wheel


def as_addition(
    path: Path, gates: tuple[GateResult, ...], hint: str = "nothing was published of it"
) -> tuple[WheelRow, Path]:
    """A wheel that has been verified. Raises `VerificationError` with `hint` unless it passed every required gate.

    Each finding is one line of the error.
    """
    if is_refused(gates):
        lines = [f"{gate.gate}: {finding}" for gate in gates for finding in gate.findings]
        lines += [f"{gate.gate}: not run ({gate.detail})" for gate in gates if gate.status is Status.NOT_RUN]
        raise VerificationError("verification refused", "\n  ".join([path.name, *lines]), hint)
    return read_wheel_row(path, gates), path


def read_additions(
    folder: Path,
    expected: Collection[str] | None = None,
    *,
    matrix: Matrix,
    host: Host,
    environ: Mapping[str, str],
    cache: Path,
) -> tuple[Addition, ...]:
    """What a release directory has, with its gates as its manifest records them; nothing of it is run.

    The gates that run nothing of the wheel are asked again, as a manifest says what it was told. They compare with
    plain builds that are kept here; none is made, as this may run beside a token.

    `expected` are the ids of the cells that it may have, where only some are. A file that is not there has no path.
    A flash-attention-amd of another version than this checkout's is left out: its sources are not here to compare it
    with, and no wheel beside it needs it.
    Raises `VerificationError` for a row whose required gates did not all pass, that is neither a cell's wheel nor of
    flash-attention-amd nor a dependency that the matrix pins, or that is not what its file says of itself, `InputError`
    if there is no manifest, and `BuildError` if there is no plain build to compare with.
    """
    additions: list[Addition] = []
    for row in read_manifest(folder / MANIFEST_NAME):
        path = DirectoryPublisher(folder).wheels_dir / row.filename
        there = path.is_file()
        wrong = _unpinned(row, matrix) or unverified_reason(row) or None
        if row.cell and expected is not None and row.cell not in expected:
            wrong = f"{row.cell} was not expected"
        wrong = wrong or (_differs(row, path) if there else None)
        if not wrong and there and is_unknown_fallback(row.project, row.version):
            logger.info("left out, this checkout cannot verify another version of it: %s", row.filename)
            continue
        if not wrong and there:
            wrong = _refused_again(row, path, matrix=matrix, host=host, environ=environ, cache=cache)
        if wrong:
            hint = f"nothing was published of {folder}"
            if wrong == unverified_reason(row) and not any(gate.status is Status.FAILED for gate in row.gates):
                hint = f"`wheelfactory run` without --quick verifies the wheels of a release directory; {hint}"
            raise VerificationError("verification refused", f"{row.filename}: {wrong}", hint)
        additions.append((row, path if there else None))
    return tuple(additions)


def _refused_again(
    row: WheelRow, path: Path, *, matrix: Matrix, host: Host, environ: Mapping[str, str], cache: Path
) -> str | None:
    """What gates find against a wheel that look at nothing else, or None.

    None are asked about a dependency, which is pinned.
    """
    results: tuple[GateResult, ...] = ()
    if row.cell:
        cell = Cell.parse(row.cell)
        results = verify(
            path, cell, gates=PUBLISH_GATES, may_build=False, matrix=matrix, host=host, environ=environ, cache=cache
        )
    elif row.project == FALLBACK_NAME:
        results = verify_fallback(path, FALLBACK_PUBLISH_GATES, may_build=False, environ=environ, cache=cache)
    found = [f"{result.gate}: {finding}" for result in results for finding in result.findings]
    return "; ".join(found) or "a gate did not pass" if results and is_refused(results) else None


def split_published(additions: Iterable[Addition], published: Iterable[WheelRow]) -> tuple[list[Addition], list[str]]:
    """The additions that are new or the same as what is published, and the names of those that are neither.

    Two runs at once can build the same cell; the wheel that was published first stays, and the other is not needed.
    """
    known = {row.filename: row.sha256 for row in published}
    kept, other = [], []
    for row, path in additions:
        if known.get(row.filename, row.sha256) == row.sha256:
            kept.append((row, path))
        else:
            other.append(row.filename)
    return kept, other


def _differs(row: WheelRow, path: Path) -> str | None:
    """What a row says other than the wheel does, as field names, or None."""
    found = read_wheel_row(path, row.gates)
    wrong = [
        name
        for name in WheelRow.model_fields
        if name not in ("published", "yanked", "evidence") and getattr(found, name) != getattr(row, name)
    ]
    return f"its row and the file differ in {', '.join(wrong)}" if wrong else None


def _unpinned(row: WheelRow, matrix: Matrix) -> str | None:
    """Why a row that is of no cell must not be published, or None."""
    if row.cell or row.project == FALLBACK_NAME:
        return None
    dependency = matrix.dependencies.get(row.project)
    pinned = dependency is not None and (dependency.wheel, dependency.sha256) == (row.filename, row.sha256)
    return None if pinned else "it is of no cell, and no dependency that the matrix pins"


def fetch_missing_dependencies(
    dependencies: Mapping[str, Dependency],
    publisher: Publisher,
    added: Collection[str] = (),
    *,
    cache: Path,
    environ: Mapping[str, str],
) -> Iterator[tuple[WheelRow, Path]]:
    """The wheels that every index carries beside flash-attn, as far as the release does not hold them.

    `brought` names files that are being added anyway.
    """
    present = {row.filename for row in publisher.rows() if publisher.has_wheel(row)}.union(added)
    for project, dependency in dependencies.items():
        if dependency.wheel not in present:
            path = fetch_file(project, dependency.wheel, dependency.sha256, cache / "sources", environ)
            yield read_wheel_row(path), path


def find_missing_fallback(publisher: Publisher) -> FallbackProject | None:
    """The sources of flash-attention-amd if the release does not hold the wheel of their version; else None.

    Raises `PublishError` if its published file was changed.
    """
    project = read_fallback_project()
    held = {row.filename for row in publisher.rows() if row.project == FALLBACK_NAME and publisher.has_wheel(row)}
    return None if project.filename in held else project


def read_wheel_row(path: Path, gates: Sequence[GateResult] = ()) -> WheelRow:
    """The manifest row of a wheel, with the time of now."""
    wheel = Wheel.open(path)
    record = read_build_record(wheel)
    return WheelRow(
        project=str(wheel.name),
        version=str(wheel.version),
        filename=path.name,
        sha256=file_sha256(path),
        size=path.stat().st_size,
        requires_python=str(wheel.metadata["Requires-Python"] or ""),
        metadata_sha256=hashlib.sha256(wheel.metadata_bytes).hexdigest(),
        published=datetime.now(timezone.utc).replace(microsecond=0),
        cell=record.cell if record else None,
        label=record.label if record else None,
        offload_archs=record.offload_archs if record else (),
        cxx11_abi=record.toolchain.cxx11_abi if record else None,
        glibc=str(wheel.glibc) if wheel.glibc else None,
        source=record.source if record else None,
        gates=tuple(gates),
    )
