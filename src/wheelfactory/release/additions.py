"""Collect additions to a release: verified wheels, release directories, and the dependencies of every index."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.build.products import PinnedProject, is_other_version, pin_product
from wheelfactory.build.sources import fetch_file
from wheelfactory.core.cell import PRODUCTS, Cell, products_beside
from wheelfactory.core.errors import InputError, VerificationError
from wheelfactory.core.files import file_sha256
from wheelfactory.core.label import Label
from wheelfactory.core.progress import logger
from wheelfactory.core.published import MANIFEST_NAME, build_key
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.release.transaction import Addition, Publisher
from wheelfactory.release.verified import unverified_reason
from wheelfactory.verify.gates import is_refused, runs_on_publish, verify
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.verify.symbols import cached_symbols
from wheelfactory.wheel.elf.mangled import find_missing, guess_provider
from wheelfactory.wheel.read import Wheel, read_build_record

_FIRST_YEAR = 2026
"""Of this factory; a machine without a battery starts in 1970."""


def as_addition(
    path: Path, gates: tuple[GateResult, ...], hint: str = "nothing was published", cache: Path | None = None
) -> tuple[WheelRow, Path]:
    """The row of a wheel with its gates, and with the torches of `cache` that it also loads on.

    Raises `VerificationError` if a required gate did not pass.
    """
    if is_refused(gates):
        lines = [f"{gate.gate}: {finding}" for gate in gates for finding in gate.findings]
        lines += [f"{gate.gate}: not run ({gate.detail})" for gate in gates if gate.status is Status.NOT_RUN]
        raise VerificationError("verification failed", "\n  ".join([path.name, *lines]), hint)
    row = read_wheel_row(path, gates)
    return with_other_torches(row, cache) if cache else row, path


def with_other_torches(row: WheelRow, cache: Path) -> WheelRow:
    """Return the row with the torches that define all its `torch_symbols`, of those whose symbols `cache` has."""
    cell = Cell.parse(row.cell) if row.torch_symbols and row.cell else None
    found = []
    for torch, defined in cached_symbols(cache, cell) if cell else ():
        if missing := find_missing(row.torch_symbols, defined):
            logger.info("%s does not load on torch %s, which lacks %s", row.filename, torch, missing)
        else:
            found.append(".".join(torch.split(".")[:2]))
    return row.model_copy(update={"other_torches": tuple(found)})


def read_additions(
    folder: Path, expected: Mapping[str, int] | None = None, wheels: Path | None = None, *, context: Context
) -> tuple[Addition, ...]:
    """Read the wheels of a release directory, with the gates that its manifest records. No code of a wheel runs.

    Gates that run no code of the wheel run again, with plain builds from the cache only. `expected` are the
    allowed cells with their replacements (`split_names`); None allows all. Files are looked for in `wheels` (default:
    the folder's own). A product in a different version than this checkout's is skipped.

    Raises `VerificationError` for a row that failed a required gate, has no file or another one, is yanked, has
    evidence, or is neither a cell's wheel nor a product nor a pinned dependency; `InputError` without a manifest;
    `BuildError` without a cached plain build.
    """
    additions: list[Addition] = []
    for row in read_manifest(folder / MANIFEST_NAME):
        path = (wheels or DirectoryPublisher(folder).wheels_dir) / row.filename
        if wrong := next(_objections(row, path, expected, context), None):
            hint = f"nothing of {folder} was published"
            if row.evidence or row.yanked:
                hint = f"publish the wheel without, then add it with `--evidence REPORT` or `--yank NAME`; {hint}"
            unchecked = unverified_reason(row, is_published=False)
            if wrong == unchecked and not any(gate.status is Status.FAILED for gate in row.gates):
                hint = f"run `wheelfactory run` without --quick to verify them; {hint}"
            raise VerificationError("verification failed", f"{row.filename}: {wrong}", hint)
        if is_other_version(row.product, row.version, context):
            logger.info("skipping %s: this checkout can only verify its own version", row.filename)
        else:
            additions.append((row, path))
    return tuple(additions)


def _objections(row: WheelRow, path: Path, expected: Mapping[str, int] | None, context: Context) -> Iterator[str]:
    """Yield why a row must not be published with its file, the gates last."""
    if row.cell and expected is not None and expected.get(row.cell) != build_key(row.filename)[1]:
        yield f"{row.cell}, build tag {build_key(row.filename)}, is not in the list of --expect"
    yield from filter(None, (_unpinned(row, context.matrix), unverified_reason(row, is_published=False)))
    if not path.is_file():
        yield f"{path} is missing"
    if different := row_differences(row, path):
        yield f"the row and the file differ in {', '.join(different)}"
    # a file of PyPI has no gates: it is pinned. And the sources of another version are not here to compare with
    if not (row.cell or row.product in PRODUCTS) or is_other_version(row.product, row.version, context):
        return
    # a manifest can claim anything, so these gates run again; they build nothing, because this job can hold a token
    cell = Cell.parse(row.cell) if row.cell else None
    results = verify(path, cell, selected=runs_on_publish, may_build=False, context=context)
    if is_refused(results):
        found = [f"{result.gate}: {finding}" for result in results for finding in result.findings]
        yield "; ".join(found) or "a gate did not pass"


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


def row_differences(row: WheelRow, path: Path, ignored: Collection[str] = ()) -> tuple[str, ...]:
    """The fields in which a row differs from its wheel, without `ignored`. Raises `InputError` for a damaged wheel."""
    found = read_wheel_row(path)
    # like its gates, what a row says about other torches was measured where these were
    left_out = ("published", "gates", "other_torches", *ignored)
    names = (name for name in WheelRow.model_fields if name not in left_out)
    return tuple(name for name in names if getattr(found, name) != getattr(row, name))


def _unpinned(row: WheelRow, matrix: Matrix) -> str | None:
    """Why a row without a cell must not be published, or None. The gates compare a product with its pinned sources."""
    if row.cell or row.product in PRODUCTS:
        return None
    dependency = matrix.dependencies.get(row.project)
    if dependency and (dependency.wheel, dependency.sha256) == (row.filename, row.sha256):
        return None
    return "neither the wheel of a cell nor a pinned dependency"


def fetch_missing_dependencies(
    publisher: Publisher, added: Collection[str] = (), *, context: Context
) -> Iterator[tuple[WheelRow, Path]]:
    """Download the dependencies from PyPI that the release does not have. `added` names files that are being added."""
    present = {row.filename for row in publisher.rows() if publisher.has_wheel(row)}.union(added)
    for project, dependency in context.matrix.dependencies.items():
        if dependency.sha256 and dependency.wheel not in present:
            sources, environ = context.cache / "sources", context.environ
            path = fetch_file(project, dependency.wheel, dependency.sha256, sources, environ)
            yield read_wheel_row(path), path


def find_missing_products(
    publisher: Publisher, cells: Iterable[Cell], *, context: Context
) -> tuple[PinnedProject, ...]:
    """The products that belong into a release of these cells, and that the release does not have.

    Raises `PublishError` if a published file of one was changed, and the errors of `pin_product`.
    """
    projects = [pin_product(name, context) for name in products_beside(cells)]
    wheels = {project.wheel for project in projects}
    held = {row.filename for row in publisher.rows() if row.filename in wheels and publisher.has_wheel(row)}
    return tuple(project for project in projects if project.wheel not in held)


def require_products(rows: Iterable[WheelRow], published: Iterable[WheelRow], *, context: Context) -> None:
    """Raise `VerificationError` if rows to publish require a product, and no index would have it.

    It must be this checkout's wheel, with which the gates ran, and not be yanked.
    """
    rows = tuple(rows)
    offered = {row.filename for row in (*rows, *published) if row.yanked is None}
    for row in rows:
        for name in Label.parse(row.label).requires if row.label else ():
            wheel = pin_product(name, context).wheel
            if wheel not in offered:
                hint = f"publish {wheel} first, or in the same command; nothing was published"
                raise VerificationError(f"{name} is not published", f"{row.filename} requires {wheel}", hint)


def read_wheel_row(path: Path, gates: Sequence[GateResult] = ()) -> WheelRow:
    """Read a wheel into a manifest row, published now. Raises `InputError` if the clock of this machine is wrong."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    if now.year < _FIRST_YEAR:
        raise InputError("the clock of this machine is wrong", now.isoformat(), "set it, then run this command again")
    wheel = Wheel.open(path)
    record = read_build_record(wheel)
    return WheelRow(
        cell=record.cell if record else None,
        label=record.label if record else None,
        offload_archs=record.offload_archs if record else (),
        source=record.source if record else None,
        project=str(wheel.name),
        version=str(wheel.version),
        filename=path.name,
        sha256=file_sha256(path),
        size=path.stat().st_size,
        requires_python=str(wheel.metadata["Requires-Python"] or ""),
        metadata_sha256=hashlib.sha256(wheel.metadata_bytes).hexdigest(),
        published=now,
        cxx11_abi=record.toolchain.cxx11_abi if record else None,
        glibc=str(wheel.glibc) if wheel.glibc else None,
        torch_symbols=_torch_symbols(wheel) if wheel.glibc else (),
        gates=tuple(gates),
    )


def _torch_symbols(wheel: Wheel) -> tuple[str, ...]:
    """Return the symbols that the compiled code of a wheel needs of torch, sorted."""
    needed = (symbol for dynamic in wheel.dynamics.values() for symbol in dynamic.undefined if not symbol.weak)
    return tuple(sorted({symbol.name for symbol in needed if guess_provider(symbol.name) == "torch"}))
