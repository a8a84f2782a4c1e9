"""Collect additions to a release: verified wheels, release directories, and the dependencies of every index."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.build.fallback import FallbackProject, is_unknown_fallback, read_fallback_project
from wheelfactory.build.sources import fetch_file
from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME, WITHOUT_CELL, Cell
from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import VerificationError
from wheelfactory.core.label import Label
from wheelfactory.core.progress import logger
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.matrix.origins import Dependency
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.release.transaction import Addition, Publisher
from wheelfactory.release.verified import unverified_reason
from wheelfactory.verify.gates import is_refused, runs_on_publish, verify
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.build_record import read_build_record
from wheelfactory.wheel.read import Wheel


def as_addition(
    path: Path, gates: tuple[GateResult, ...], hint: str = "nothing was published"
) -> tuple[WheelRow, Path]:
    """The row of a wheel with its gates. Raises `VerificationError` if a required gate did not pass."""
    if is_refused(gates):
        lines = [f"{gate.gate}: {finding}" for gate in gates for finding in gate.findings]
        lines += [f"{gate.gate}: not run ({gate.detail})" for gate in gates if gate.status is Status.NOT_RUN]
        raise VerificationError("verification failed", "\n  ".join([path.name, *lines]), hint)
    return read_wheel_row(path, gates), path


def read_additions(
    folder: Path,
    expected: Collection[str] | None = None,
    wheels: Path | None = None,
    *,
    context: Context,
) -> tuple[Addition, ...]:
    """Read the wheels of a release directory, with the gates that its manifest records. No code of a wheel runs.

    Gates that run no code of the wheel run again, with plain builds from the cache only. `expected` limits the cells;
    None allows all. Files are looked for in `wheels` (default: the folder's own); the path of a missing one is None.
    A flash-attention-amd of a different version than this checkout's is skipped.

    Raises `VerificationError` for a row that failed a required gate, differs from its file, or is neither a cell's
    wheel nor flash-attention-amd nor a pinned dependency; `InputError` without a manifest; `BuildError` without a
    cached plain build.
    """
    additions: list[Addition] = []
    for row in read_manifest(folder / MANIFEST_NAME):
        path = (wheels or DirectoryPublisher(folder).wheels_dir) / row.filename
        exists = path.is_file()
        wrong = _unpinned(row, context.matrix) or unverified_reason(row) or None
        if row.cell and expected is not None and row.cell not in expected:
            wrong = f"{row.cell} is not in the list of --expect"
        wrong = wrong or (_differs(row, path) if exists else None)
        # the sources of another version are not here to compare with, and no wheel needs that version
        if not wrong and exists and is_unknown_fallback(row.project, row.version):
            logger.info("skipping %s: this checkout can only verify its own version", row.filename)
            continue
        # a manifest can claim anything, so these gates run again; they build nothing, because this job can hold a token
        if not wrong and exists:
            wrong = _gate_error(row, path, context=context)
        if wrong:
            hint = f"nothing of {folder} was published"
            if wrong == unverified_reason(row) and not any(gate.status is Status.FAILED for gate in row.gates):
                hint = f"run `wheelfactory run` without --quick to verify them; {hint}"
            raise VerificationError("verification failed", f"{row.filename}: {wrong}", hint)
        additions.append((row, path if exists else None))
    return tuple(additions)


def _gate_error(row: WheelRow, path: Path, *, context: Context) -> str | None:
    """The findings of the gates that need only the wheel file, or None. A file of PyPI has no gates: it is pinned."""
    if not row.cell and row.project not in WITHOUT_CELL:
        return None
    cell = Cell.parse(row.cell) if row.cell else None
    results = verify(path, cell, selected=runs_on_publish, may_build=False, context=context)
    found = [f"{result.gate}: {finding}" for result in results for finding in result.findings]
    return "; ".join(found) or "a gate did not pass" if is_refused(results) else None


def split_published(additions: Iterable[Addition], published: Iterable[WheelRow]) -> tuple[list[Addition], list[str]]:
    """Split off the additions whose name is published with different content; return the rest, and those names."""
    known = {row.filename: row.sha256 for row in published}
    kept, other = [], []
    # two concurrent runs can build the same cell: the wheel published first stays
    for row, path in additions:
        if known.get(row.filename, row.sha256) == row.sha256:
            kept.append((row, path))
        else:
            other.append(row.filename)
    return kept, other


def _differs(row: WheelRow, path: Path) -> str | None:
    """The fields in which a row differs from its wheel, or None."""
    wrong = row_differences(row, path)
    return f"the row and the file differ in {', '.join(wrong)}" if wrong else None


def row_differences(row: WheelRow, path: Path) -> tuple[str, ...]:
    """The fields in which a row differs from its wheel. Raises `InputError` if the wheel is damaged."""
    found = read_wheel_row(path, row.gates)
    return tuple(
        name
        for name in WheelRow.model_fields
        if name not in ("published", "yanked", "evidence") and getattr(found, name) != getattr(row, name)
    )


def _unpinned(row: WheelRow, matrix: Matrix) -> str | None:
    """Why a row without a cell must not be published, or None."""
    if row.cell or row.project == FALLBACK_NAME:
        return None
    dependency = matrix.dependencies.get(row.project)
    # what is built from a commit has no pinned digest: its gates compare it with the commit
    pinned = dependency is not None and (
        (dependency.wheel, dependency.sha256 or row.sha256) == (row.filename, row.sha256)
    )
    return None if pinned else "neither the wheel of a cell nor a pinned dependency"


def fetch_missing_dependencies(
    dependencies: Mapping[str, Dependency],
    publisher: Publisher,
    added: Collection[str] = (),
    *,
    cache: Path,
    environ: Mapping[str, str],
) -> Iterator[tuple[WheelRow, Path]]:
    """Download the dependencies from PyPI that the release does not have. `added` names files that are being added."""
    present = {row.filename for row in publisher.rows() if publisher.has_wheel(row)}.union(added)
    for project, dependency in dependencies.items():
        if dependency.sha256 and dependency.wheel not in present:
            path = fetch_file(project, dependency.wheel, dependency.sha256, cache / "sources", environ)
            yield read_wheel_row(path), path


def find_missing_aiter(matrix: Matrix, publisher: Publisher, cells: Iterable[Cell]) -> Dependency | None:
    """The pin of aiter if one of the cells takes its kernels from it and the release does not have its wheel.

    Raises `PublishError` if its published file was changed.
    """
    dependency = matrix.dependencies.get(AITER_NAME)
    if dependency is None or not any(cell.uses_aiter for cell in cells):
        return None
    held = any(row.filename == dependency.wheel and publisher.has_wheel(row) for row in publisher.rows())
    return None if held else dependency


def require_aiter(
    rows: Iterable[WheelRow], published: Iterable[WheelRow], dependencies: Mapping[str, Dependency]
) -> None:
    """Raise `VerificationError` if rows to publish take their kernels from aiter, and no index would have it.

    It must be the wheel in `dependencies`, with which the gates ran, and not be yanked.
    """
    rows, pin = tuple(rows), dependencies.get(AITER_NAME)
    needing = next((row for row in rows if row.label and Label.parse(row.label).uses_aiter), None)
    offered = {row.filename for row in (*rows, *published) if row.yanked is None}
    if needing and (pin is None or pin.wheel not in offered):
        name = pin.wheel if pin else AITER_NAME
        hint = f"publish {name} first, or in the same command; nothing was published"
        raise VerificationError(f"{AITER_NAME} is not published", f"{needing.filename} requires {name}", hint)


def find_missing_fallback(publisher: Publisher) -> FallbackProject | None:
    """The project flash-attention-amd if the release does not have the wheel of its version, else None.

    Raises `PublishError` if its published file was changed.
    """
    project = read_fallback_project()
    held = {row.filename for row in publisher.rows() if row.project == FALLBACK_NAME and publisher.has_wheel(row)}
    return None if project.filename in held else project


def read_wheel_row(path: Path, gates: Sequence[GateResult] = ()) -> WheelRow:
    """Read a wheel into a manifest row, published now."""
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
