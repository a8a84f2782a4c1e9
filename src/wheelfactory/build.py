"""Cell -> finished wheel: sources unpacked, build_rocm.sh run, METADATA and label given, auditwheel run."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.cell import Backend, Cell
from wheelfactory.checkout import BUILD_SCRIPT
from wheelfactory.environments import build_environment, build_requirements
from wheelfactory.errors import BuildError
from wheelfactory.files import atomic_path, scratch_dir
from wheelfactory.process import run_logged
from wheelfactory.progress import Part, logger
from wheelfactory.recipe import Recipe, make_recipe
from wheelfactory.repair import find_platform
from wheelfactory.rocm_python import make_rocm_python
from wheelfactory.sources import Source, fetch_source, unpack
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import BuildRecord, Toolchain
from wheelfactory.wheel.rewrite import finish_wheel, refuse_other
from wheelfactory.workshop import Workshop


@dataclass(frozen=True)
class RawWheel:
    """What setup.py made, and what it was made with."""

    path: Path
    toolchain: Toolchain


def build_cell(workshop: Workshop, cell: Cell, folder: Path, part: Part, *, by_hand: bool = False) -> Path:
    """Build one cell into `folder` and give the finished wheel.

    Raises `InputError` or `BuildError` before anything is downloaded if the cell cannot be built here,
    `SourceError` for its sources, `BuildError` with the log's place if the build fails.
    """
    recipe = make_recipe(workshop.matrix, cell, workshop.host, workshop.environ, by_hand=by_hand)
    source = fetch_source(
        cell.flash_attn,
        workshop.matrix.flash_attn[cell.flash_attn],
        workshop.cache / "sources",
        workshop.environ,
    )
    if cell.backend is Backend.TRITON:
        payload = _triton_payload(workshop, recipe, source, part)
        return finish(payload, _record(recipe, source, Toolchain()), folder, workshop.environ)
    python = make_rocm_python(workshop, cell)
    with scratch_dir(workshop.cache) as scratch:
        raw = _compile(workshop, recipe, source, python, scratch, part)
        return finish(raw.path, _record(recipe, source, raw.toolchain), folder, workshop.environ)


def _record(recipe: Recipe, source: Source, toolchain: Toolchain) -> BuildRecord:
    return BuildRecord(
        cell=recipe.cell.id,
        label=str(recipe.label),
        offload_archs=recipe.archs,
        source=source.identity,
        toolchain=toolchain,
    )


def finish(raw: Path, record: BuildRecord, folder: Path, environ: Mapping[str, str]) -> Path:
    """Give a raw wheel the METADATA, label, build record and platform tag of its cell; write it to `folder`, once.

    Raises `InputError` if `raw` is no wheel or one of another release or label, `VerificationError` if its compiled
    code needs what neither torch nor ROCm nor the system brings.
    """
    refuse_other(Wheel.open(raw), record)  # a wrong file is told as such, whatever auditwheel thinks of it
    platform = find_platform(raw, record.toolchain.glibc, folder, environ)
    return finish_wheel(raw, record, folder, platform)


def _triton_payload(workshop: Workshop, recipe: Recipe, source: Source, part: Part) -> Path:
    """The Triton wheel of a flash-attn release, built once for all its labels."""
    content = "\n".join([source.identity, *build_requirements(), json.dumps(recipe.environment, sort_keys=True)])
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    kept = workshop.cache / "raw" / key
    for path in kept.glob("*.whl"):
        return path
    python = build_environment(workshop.cache).python
    with scratch_dir(workshop.cache) as scratch:
        raw = _compile(workshop, recipe, source, python, scratch, part)
        with atomic_path(kept / raw.path.name) as written:
            shutil.copyfile(raw.path, written)
    return kept / raw.path.name


def _compile(workshop: Workshop, recipe: Recipe, source: Source, python: Path, scratch: Path, part: Part) -> RawWheel:
    """Run build_rocm.sh as a container runs it: everything it needs is handed to it."""
    raw = scratch / "raw"
    log = workshop.cache / "logs" / f"{recipe.cell.id}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    handed = {
        "SOURCE_DIR": str(unpack(source, scratch / "source")),
        "RAW_DIR": str(raw),
        "BUILD_PYTHON": str(python),
        "SOURCE_DATE_EPOCH": str(source.epoch),
        "PYTHONNOUSERSITE": "1",
        "PATH": f"{python.parent}:{workshop.environ.get('PATH', '')}",  # ninja is beside the Python
    }
    environ = {**workshop.clean_environ, **recipe.environment, **handed}
    logger.info("running setup.py, log in %s", log)
    wheels = run_logged([BUILD_SCRIPT], log, environ=environ, part=part).splitlines()
    if len(wheels) != 1:
        raise BuildError("the build made no wheel", recipe.cell.id, f"the full log is {log}")
    return RawWheel(Path(wheels[0]), Toolchain.model_validate_json((raw / "toolchain.json").read_bytes()))
