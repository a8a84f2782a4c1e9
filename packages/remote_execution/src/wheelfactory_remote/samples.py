"""Samples of a cluster's objects, which this machine also compiles, to compare the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.kernels.compiler.store import Store


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
