"""Cut the cells of a workflow run into batches, predict what their jobs take of time and disk, group cells into waves.

One job builds the cells of a batch one after the other, and a job on another machine verifies their wheels. The CK
cells of a batch share a base image, which each of the two jobs pulls once. Cells of one wave never wait for the same
slow build. GB are 10^9 bytes, as in matrix.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from wheelfactory.core.cell import OFFERED_PRODUCTS, Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.kernel_set import sets_of_cell
from wheelfactory.matrix.expand import GITHUB_MATRIX_LIMIT
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.origins import Image

MAX_BATCH_MINUTES = 240.0
"""Limit of the predicted time of a job. A hosted job ends after six hours, and the prediction may be wrong by half."""

MAX_BATCH_BYTES = 12 * 1000**3
"""Limit of the wheels of a batch, each at its upper size estimate. One hosted job uploads them all; GitHub guarantees
it 14 GB, and the factory's own files take less than 1 GB."""

# Predicted minutes on four cores. The Triton figures follow from a measurement: `run` of two cells with one Triton took
# 3 min on two idle cores, all gates included. The others are guesses about AMD's images, which nobody here could run.
_SETUP = 1.0
_UPLOAD = 2.0
_PULL = 15.0  # 7 to 10 GB compressed, some 30 GB unpacked
_ENVIRONMENT = 8.0  # torch and what it requires: 5 GB to download, 13 GB installed
_BUILD = {Backend.CK: 10.0, Backend.TRITON: 0.2}  # CK: seven bindings that include torch's headers, and the link
_VERIFY = {Backend.CK: 2.0, Backend.TRITON: 0.2}
_PROVE_SET = 3.0  # a sample of the kernels of a set: 5 CPU minutes, after CK's host API is compiled
_PROVE = 2.0  # the kernels of one Triton release: compiled and executed for twelve archs

_UPLOADS_AN_HOUR = 500  # GitHub's documentation of rate limits: requests that create content
_CALLS = 13  # of a batch: counted for the whole matrix by tests/release/github/test_release_github_calls.py


@dataclass(frozen=True)
class Batch:
    """Cells that one job builds and another verifies."""

    name: str
    """Unique in the run, such as ``ck-rocm7.2.4-1`` or ``triton-2.8.3-1``."""
    matrix: Matrix
    cells: tuple[Cell, ...]

    @property
    def is_compiled(self) -> bool:
        """Whether these are CK cells, whose jobs pull an image."""
        return self.cells[0].backend is Backend.CK

    @cached_property
    def minutes(self) -> tuple[float, ...]:
        """Predicted minutes of each job but the upload: build, verify, and for Triton the numeric gates."""
        backend, count, start = self.cells[0].backend, len(self.cells), _SETUP
        if self.is_compiled:
            start += _PULL + _ENVIRONMENT * len({environment_of(cell) for cell in self.cells})
        by_job = (start + _BUILD[backend] * count, start + _VERIFY[backend] * count)
        tritons = {self.matrix.torch[cell.torch].triton for cell in self.cells}
        return by_job if self.is_compiled else (*by_job, _SETUP + _PROVE * len(tritons))

    @cached_property
    def wheel_bytes(self) -> int:
        """Upper estimate of the size of all wheels."""
        releases = self.matrix.flash_attn
        backends = [releases[cell.flash_attn].backend(cell.backend) for cell in self.cells]
        return sum(backend.wheel_bytes[-1] for backend in backends if backend)

    @property
    def fits(self) -> bool:
        """Whether the batch keeps the limits; a single cell always does, as it cannot be cut."""
        within = max(self.minutes) <= MAX_BATCH_MINUTES and self.wheel_bytes <= MAX_BATCH_BYTES
        return within or len(self.cells) == 1


def environment_of(cell: Cell) -> tuple[object, ...]:
    """What cells share that are built in one environment."""
    return cell.rocm, cell.torch, cell.python, cell.amd_torch


def cut_batches(matrix: Matrix, cells: Sequence[Cell]) -> tuple[Batch, ...]:
    """Cut cells into as few batches as keep the limits: CK cells by base image, Triton cells by release.

    Cells with the same torch and Python follow each other, so that one environment serves them. Raises `InputError` if
    there are more batches than one GitHub matrix allows.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        # rocm7.2.4 of rocm/pytorch:rocm7.2.4_ubuntu22.04_py3.10_pytorch_release_2.10.0
        shared = matrix.image(cell).tag.rpartition(":")[2] if cell.backend is Backend.CK else cell.flash_attn
        groups.setdefault(f"{cell.backend}-{shared}", []).append(cell)
    batches: list[Batch] = []
    for group, members in groups.items():
        prefix = group.partition("_")[0]
        environments = list(dict.fromkeys(map(environment_of, members)))
        members.sort(key=lambda cell: environments.index(environment_of(cell)))
        while members:
            number = 1 + sum(batch.name.startswith(f"{prefix}-") for batch in batches)
            batch = Batch(f"{prefix}-{number}", matrix, (members.pop(0),))
            while members and (larger := replace(batch, cells=(*batch.cells, members[0]))).fits:
                batch = larger
                members.pop(0)
            batches.append(batch)
    if len(batches) > GITHUB_MATRIX_LIMIT:
        which = f"{len(cells)} cells make {len(batches)} batches, GitHub's limit is {GITHUB_MATRIX_LIMIT}"
        hint = "select fewer cells with --only, then run it for the rest"
        raise InputError("too many cells for one run", which, hint)
    return tuple(batches)


@dataclass(frozen=True)
class RunForecast:
    """What a workflow run takes, as predicted."""

    jobs: int
    cell_pulls: int
    """Pulls of base images by the jobs of cells; each kernel shard pulls one more."""
    job_hours: float
    """Time of all jobs together."""
    wall_hours: float
    """Time until the site is deployed, if no job waits for a runner."""
    storage_bytes: int
    """Upper estimate of the wheels, which are artifacts for a week."""
    uploads: int = 0
    """Files of the wheels for the release. GitHub takes `_UPLOADS_AN_HOUR`."""
    calls: int = 0
    """Other calls of GitHub's API, for stored kernel sets. GitHub allows a repository's token 1,000 an hour."""

    @property
    def to_json(self) -> dict[str, float]:
        """The forecast as JSON; hours are rounded."""
        return {name.replace("_", "-"): round(number, 1) for name, number in vars(self).items()}

    def __str__(self) -> str:
        return (
            f"{self.jobs} jobs of {self.job_hours:,.1f} h, {self.cell_pulls} pulls by cells, "
            f"artifacts up to {self.storage_bytes / 1000**3:.1f} GB, site after {self.wall_hours:.1f} h, "
            f"{self.uploads:,} uploads and {self.calls:,} other calls to GitHub"
        )


OTHER_JOBS = 9
"""Jobs that every release has: select, collect, approve, plain builds, publish, generate, deploy, check, reconcile."""

PRODUCT_JOBS = 3 * len(OFFERED_PRODUCTS)
"""Jobs of the products that no cell requires: build, verify and upload each."""


def predict_run(batches: Sequence[Batch], shard_hours: Sequence[float], proofs: int = 0) -> RunForecast:
    """Predict a run that compiles kernel shards of these hours, proves sets, then builds and publishes batches."""
    if not batches:  # select and reconcile
        return RunForecast(2, 0, job_hours=2 * _SETUP / 60, wall_hours=2 * _SETUP / 60, storage_bytes=0)
    shards, proof = [_SETUP + _PULL + 60 * hours for hours in shard_hours], _SETUP + _PULL + _PROVE_SET
    # the uploads fill one draft, one after the other; each of these products has one too
    count = len(batches) + len(OFFERED_PRODUCTS)
    files = 3 * (sum(len(batch.cells) for batch in batches) + len(OFFERED_PRODUCTS))
    uploads = max(_UPLOAD * count, 60 * files / _UPLOADS_AN_HOUR)
    others = _SETUP * (OTHER_JOBS + PRODUCT_JOBS - len(OFFERED_PRODUCTS))
    slowest = max(shards, default=0.0) + proof * bool(proofs)
    slowest += max((sum(batch.minutes) for batch in batches), default=0.0)
    return RunForecast(
        # the upload is a job too
        jobs=OTHER_JOBS + PRODUCT_JOBS + len(shards) + proofs + sum(1 + len(batch.minutes) for batch in batches),
        cell_pulls=2 * sum(batch.is_compiled for batch in batches),  # to build, and to verify
        job_hours=(sum(shards) + proofs * proof + sum(sum(batch.minutes) for batch in batches) + uploads + others) / 60,
        wall_hours=(slowest + uploads + _SETUP * OTHER_JOBS) / 60,
        storage_bytes=sum(batch.wheel_bytes for batch in batches),
        uploads=files,
        calls=_CALLS * count,
    )


def split_into_waves(matrix: Matrix, cells: Sequence[Cell]) -> tuple[tuple[Cell, ...], ...]:
    """Return the waves: a cell for each Triton wheel (minutes), those that compile kernel sets (hours), the others.

    The others only link or label.
    """
    triton: dict[str, Cell] = {}
    for cell in cells:
        if cell.backend is Backend.TRITON:
            triton.setdefault(cell.flash_attn, cell)
    leaders = [set(triton.values()), *_compile_waves(matrix, cells)]
    others = set(cells).difference(*leaders)
    return tuple(tuple(cell for cell in cells if cell in group) for group in (*leaders, others) if group)


def _compile_waves(matrix: Matrix, cells: Iterable[Cell]) -> Iterator[set[Cell]]:
    """Yield the cells that compile every kernel set once; no two of a wave compile the same set."""
    # a cell compiles all its sets in one build, and two cells can share some: both ABIs link the same device code
    missing = {cell: frozenset(sets_of_cell(matrix, cell)) for cell in cells}
    while any(missing.values()):
        compiling: set[str] = set()
        wave: set[Cell] = set()
        for cell, sets in missing.items():
            if sets and compiling.isdisjoint(sets):
                wave.add(cell)
                compiling |= sets
        yield wave
        missing = {cell: sets - compiling for cell, sets in missing.items()}


# ROCm's torch: 13 installed (pytorch/pytorch#129165, torch 2.3.1+rocm6.0 with its requirements), and 5 for the wheel,
# which pip caches (5.1 for 2.10.0+rocm7.1). Reported, not measured here
INSTALLED_TORCH_GB = 18.0


def extra_disk_gb(matrix: Matrix, image: Image, cells: Iterable[Cell], kernel_bytes: int) -> float:
    """Disk space that building these cells needs besides the image: torch, unless the image has it, and the kernels.

    `kernel_bytes` is the disk space of the compile, from the kernel set's estimate.
    """
    has_torch = all(matrix.has_torch(cell, image) for cell in cells)
    return (0.0 if has_torch else INSTALLED_TORCH_GB) + kernel_bytes / 1000**3


def fits_on_disk(image: Image, extra_gb: float, disk_gb: float) -> bool | None:
    """Whether an image and `extra_gb` fit on a disk of `disk_gb`, with space left; None if the image's size is unknown
    and decides.
    """
    if extra_gb >= disk_gb:
        return False
    return None if image.disk_gb is None else image.disk_gb + extra_gb < disk_gb


@dataclass(frozen=True)
class ImageEstimate:
    """One image, the extra GB that its cells need, and whether both fit on the disk (None: unknown)."""

    image: Image
    slim: bool
    extra_gb: float
    fits: bool | None

    @property
    def to_json(self) -> dict[str, Any]:
        """The estimate as JSON."""
        return {
            "tag": self.image.tag,
            "slim": self.slim,
            "disk-gb": self.image.disk_gb,
            "extra-gb": round(self.extra_gb, 2),
            "fits": self.fits,
        }


def estimate_images(matrix: Matrix, kernel_bytes: Mapping[Cell, int], disk_gb: float) -> list[ImageEstimate]:
    """Estimate the regular and slim images of these cells against a disk of `disk_gb`.

    `kernel_bytes` is the disk space that compiling each cell's kernels takes. Triton cells need no image.
    """
    cells: dict[tuple[Image, bool], list[Cell]] = {}
    for cell in kernel_bytes:
        for slim in (False, True):
            image = matrix.image(cell, slim=slim)
            if slim == (image is matrix.rocm[cell.rocm].slim):
                cells.setdefault((image, slim), []).append(cell)
    estimates = []
    for (image, slim), members in cells.items():
        beside = extra_disk_gb(matrix, image, members, max(kernel_bytes[cell] for cell in members))
        estimates.append(ImageEstimate(image, slim, beside, fits_on_disk(image, beside, disk_gb)))
    return estimates


def render_image_estimates(estimates: Sequence[ImageEstimate], disk_gb: float, *, each: bool = True) -> Iterator[str]:
    """Render how many images fit, or with `each` a line for every image; empty if there are none."""
    if not estimates:
        return
    if not each:
        unknown = sum(estimate.fits is None for estimate in estimates)
        more = f", {unknown} of unknown size" if unknown else ""
        fitting = sum(estimate.fits is True for estimate in estimates)
        yield f"images       {fitting} of {len(estimates)} fit on a disk of {disk_gb:g} GB{more}"
        return
    yield f"images, on a disk of {disk_gb:g} GB"
    for estimate in estimates:
        verdict = {True: "fits", False: "too big", None: "unknown"}[estimate.fits]
        size = f"{estimate.image.disk_gb} GB" if estimate.image.disk_gb else "size unknown"
        slim = ", slim" if estimate.slim else ""
        yield f"  {verdict:<9}  {estimate.image.tag}{slim}: {size}, and {estimate.extra_gb:.1f} GB more for the build"
