"""The kernels that a cluster compiles: which are missing, the verified objects and records that return, and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.kernels.compiler.costs import Cost, Ledger, predict_cost
from wheelfactory.kernels.compiler.objects import require_object
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.compiler.survey import Survey, SurveyPart
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory_remote import messages
from wheelfactory_remote.client import Client
from wheelfactory_remote.server import ResultError

_MAX_SHOWN = 200
"""Characters of a server's text in a message."""

_MAX_OUTPUT_BYTES = 1 << 20
"""What a compiler printed is not read if it is longer."""


@dataclass(frozen=True)
class Kernel:
    """One compile to have done."""

    store: Store
    part: SurveyPart
    name: str
    predicted: Cost


def find_missing_kernels(survey: Survey, kernels: Path, ledger: Ledger, *, ignore_cache: bool = False) -> list[Kernel]:
    """List the compiles whose objects the store lacks, the most expensive first.

    With `ignore_cache` it first removes those that an earlier build took from the cache of a server.
    """
    found = []
    for part in survey.parts:
        store = Store(kernels, part.key)
        store.create()
        if ignore_cache:
            store.remove_objects(entry for entry in store.read_records().values() if entry.cached)
        found += [
            Kernel(store, part, name, predict_cost(ledger, name, part.targets, survey.compiler))
            for name in store.find_missing(part.sources)
        ]
    return sorted(found, key=lambda kernel: (-kernel.predicted.cpu_s, kernel.name, kernel.part.targets))


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


@dataclass(frozen=True)
class Sample:
    """An object that the cluster made, and that this machine makes, too."""

    store: Store
    name: str
    sha256: str
    worker: str


@dataclass(frozen=True)
class Filled:
    """What a cluster has done for a build."""

    stores: tuple[Store, ...]
    """Stores that may have received objects."""
    samples: Sequence[Sample]


NOTHING_FILLED = Filled((), ())
"""What a build without a cluster has."""


def verify_samples(filled: Filled) -> None:
    """Compare the objects of the cluster with those that this machine has made since.

    If one differs, remove every object of a worker from the stores and raise `BuildError`.
    """
    pairs = [(sample, sample.store.read_records().get(sample.name)) for sample in filled.samples]
    compared = [(sample, made) for sample, made in pairs if made and not made.made_by]
    differing = next(((sample, made) for sample, made in compared if sample.sha256 != made.sha256), None)
    if differing:
        sample, made = differing
        for store in filled.stores:
            store.remove_objects(entry for entry in store.read_records().values() if entry.made_by)
        raise BuildError(
            "the cluster made another object than this machine",
            f"{sample.name} by {sample.worker}: {sample.sha256[:12]}, here {made.sha256[:12]}",
            "its objects are removed from the cache: build without --remote, or find the worker's error",
        )
    if filled.samples:
        logger.info("%d of %d sampled kernels compiled here, too: same bytes", len(compared), len(filled.samples))
