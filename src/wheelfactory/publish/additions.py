"""What is added to a release: the row of a verified wheel, and the dependencies that each index must carry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.errors import VerificationError
from wheelfactory.files import sha256_of
from wheelfactory.manifest import WheelRow
from wheelfactory.publish.transaction import Publisher
from wheelfactory.sources import fetch_file
from wheelfactory.verify.gates import refused
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import read_record
from wheelfactory.workshop import Workshop

Addition = tuple[WheelRow, Path]
"""A row and the file it is of."""


def addition(path: Path, gates: tuple[GateResult, ...]) -> Addition:
    """A wheel that has been verified. Raises `VerificationError` unless it passed every required gate.

    Each finding is one line of the error.
    """
    if refused(gates):
        lines = [f"{gate.gate}: {finding}" for gate in gates for finding in gate.findings]
        lines += [f"{gate.gate}: not run ({gate.detail})" for gate in gates if gate.status is Status.NOT_RUN]
        raise VerificationError("verification refused", "\n  ".join([path.name, *lines]), "nothing was published of it")
    return wheel_row(path, gates), path


def missing_dependencies(workshop: Workshop, publisher: Publisher) -> Iterator[Addition]:
    """The wheels that every index carries beside flash-attn, as far as the release does not hold them."""
    present = {row.filename for row in publisher.rows() if publisher.holds(row)}
    for project, dependency in workshop.matrix.dependencies.items():
        if dependency.wheel not in present:
            cache = workshop.cache / "sources"
            path = fetch_file(project, dependency.wheel, dependency.sha256, cache, workshop.environ)
            yield wheel_row(path), path


def wheel_row(path: Path, gates: Sequence[GateResult] = ()) -> WheelRow:
    """The manifest row of a wheel, with the time of now."""
    wheel = Wheel.open(path)
    record = read_record(wheel)
    return WheelRow(
        project=str(wheel.name),
        version=str(wheel.version),
        filename=path.name,
        sha256=sha256_of(path),
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
