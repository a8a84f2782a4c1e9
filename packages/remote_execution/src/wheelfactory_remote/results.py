"""What a cluster returns for a compile: a verified object, and its record for the store."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.kernels.compiler.limits import require_object
from wheelfactory.kernels.compiler.store import ObjectRecord
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory_remote import messages
from wheelfactory_remote.channel import ResultError
from wheelfactory_remote.client import Client

_MAX_SHOWN = 200
"""Characters of a server's text in a message."""

_MAX_OUTPUT_BYTES = 1 << 20
"""What a compiler printed is not read if it is longer."""


def worker_name(result: messages.ActionResult) -> str:
    """The worker that executed it, as the server says."""
    return result.execution_metadata.worker[:_MAX_SHOWN] or "unnamed worker"


async def read_object(
    client: Client, result: messages.ActionResult, source: str, path: Path, comment: str, target: str
) -> messages.Digest:
    """Save the object of `source` for `target`, an arch or `HOST`, to `path`, and return its digest.

    `comment` is what the compiler of this build writes into its objects. Raises `ResultError` if the compile failed, or
    if its object is missing, damaged, of another compiler or source, or for another target.
    """
    worker = worker_name(result)
    if result.exit_code:
        text = result.stderr_raw
        if not text and 0 < result.stderr_digest.size_bytes <= _MAX_OUTPUT_BYTES:
            await client.read(result.stderr_digest, path)
            text = path.read_bytes()
        lines = text.decode(errors="replace").strip().splitlines() or [f"exit status {result.exit_code}"]
        first = next((line for line in lines if "error:" in line), lines[-1])
        raise ResultError(f"failed on {worker}: {first[:_MAX_SHOWN]}")
    outputs = [file for file in result.output_files if file.path == f"{source}.o"]
    if not outputs:
        raise ResultError(f"{worker} made no object")
    digest: messages.Digest = outputs[0].digest
    await client.read(digest, path)
    try:
        require_object(path, source, target, comment)
    except DamagedElfError as error:
        raise ResultError(f"{worker} made no object for {target}: {error}") from None
    return digest


def make_record(
    name: str, targets: tuple[str, ...], result: messages.ActionResult, digest: messages.Digest, *, is_cached: bool
) -> ObjectRecord:
    """Make the record of an object; `is_cached` tells whether the server had the result already.

    Raises `ResultError` for invalid times.
    """
    ran = result.execution_metadata
    stamps = (ran.execution_start_timestamp, ran.execution_completed_timestamp)
    try:
        start, end = (float(stamp.ToNanoseconds()) / 1e9 for stamp in stamps)
    except ValueError:
        raise ResultError(f"{worker_name(result)} has invalid times") from None
    # results carry no CPU seconds, so wall seconds; a record without memory is no measurement
    return ObjectRecord(
        *(name, targets, digest.hash, digest.size_bytes),
        cpu_s=max(0.0, end - start),
        peak_mib=0,
        start=start,
        end=end,
        made_by=worker_name(result),
        cached=is_cached,
    )
