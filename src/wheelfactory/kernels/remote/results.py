"""What a cluster returns for a compile: a verified object, and its record for the store."""

from __future__ import annotations

import hashlib

from wheelfactory.core.wrap import as_printable
from wheelfactory.kernels.compiler.limits import require_object
from wheelfactory.kernels.compiler.store import ObjectRecord
from wheelfactory.kernels.remote import messages_pb2 as messages
from wheelfactory.kernels.remote.channel import ResultError
from wheelfactory.kernels.remote.client import Client
from wheelfactory.wheel.elf.image import DamagedElfError

_MAX_SHOWN = 200
"""Characters of a server's text in a message."""


def worker_name(result: messages.ActionResult) -> str:
    """The worker that executed it, as the server says."""
    return as_printable(result.execution_metadata.worker[:_MAX_SHOWN]) or "unnamed worker"


async def read_object(
    client: Client, result: messages.ActionResult, source: str, output: str, comment: str, target: str
) -> bytes:
    """Read the object at the relative path `output`, which was compiled of `source` for `target`, an arch or `HOST`.

    `comment` is what the compiler of this build writes into its objects. Raises `ResultError` if the compile failed, or
    if its object is missing, damaged, of another compiler or source, or for another target.
    """
    worker = worker_name(result)
    if result.exit_code:
        text = result.stderr_raw
        if not text and result.stderr_digest.size_bytes:
            text = await client.read(result.stderr_digest)
        lines = text.decode(errors="replace").strip().splitlines() or [f"exit status {result.exit_code}"]
        first = next((line for line in lines if "error:" in line), lines[-1])
        raise ResultError(f"failed on {worker}: {as_printable(first[:_MAX_SHOWN])}")
    outputs = [file for file in result.output_files if file.path == output]
    if not outputs:
        raise ResultError(f"{worker} made no object")
    data = await client.read(outputs[0].digest)
    # clang writes its version into the section .comment, lld keeps it
    if comment.encode() not in data:
        raise ResultError(f"{worker} has another compiler than {comment}")
    try:
        require_object(data, source, target)
    except DamagedElfError as error:
        raise ResultError(f"{worker} made no object for {target}: {error}") from None
    return data


def make_record(
    name: str, targets: tuple[str, ...], result: messages.ActionResult, data: bytes, *, is_cached: bool
) -> ObjectRecord:
    """Make the record of an object; `is_cached` tells whether the server had the result already.

    Raises `ResultError` for times that are none.
    """
    ran = result.execution_metadata
    stamps = (ran.execution_start_timestamp, ran.execution_completed_timestamp)
    try:
        start, end = (float(stamp.ToNanoseconds()) / 1e9 for stamp in stamps)
    except ValueError:
        raise ResultError(f"{worker_name(result)} names times that are none") from None
    # wall seconds for those of the CPU, which results do not carry; a record without memory is no measurement
    return ObjectRecord(
        *(name, targets, hashlib.sha256(data).hexdigest(), len(data)),
        cpu_s=max(0.0, end - start),
        peak_mib=0,
        start=start,
        end=end,
        made_by=worker_name(result),
        cached=is_cached,
    )
