"""Recipe + sources -> raw wheel: upstream's own setup.py, run by build_rocm.sh, on a host now and in an image alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.checkout import BUILD_SCRIPT
from wheelfactory.errors import BuildError
from wheelfactory.process import run_logged
from wheelfactory.progress import Part, logger
from wheelfactory.recipe import Recipe
from wheelfactory.sources import Source, unpack
from wheelfactory.wheel.record import Toolchain
from wheelfactory.workshop import Workshop


@dataclass(frozen=True)
class RawWheel:
    """What setup.py made, and what it was made with."""

    path: Path
    toolchain: Toolchain


@dataclass(frozen=True)
class Setup:
    """One run of setup.py: for which recipe, from which sources, by which Python, in which folder of its own."""

    recipe: Recipe
    source: Source
    python: Path
    scratch: Path


def run_setup(workshop: Workshop, setup: Setup, log_name: str, handed: Mapping[str, str], part: Part) -> RawWheel:
    """Run setup.py with everything it needs handed to it, `handed` included; its output goes to a log of that name.

    Raises `BuildError` with the last lines and the place of the log, `SourceError` for sources that cannot be unpacked.
    """
    raw = setup.scratch / "raw"
    log = log_path(workshop, log_name)
    log.parent.mkdir(parents=True, exist_ok=True)
    environ = {
        **workshop.clean_environ,
        **setup.recipe.environment,
        "SOURCE_DIR": str(unpack(setup.source, setup.scratch / "source")),
        "RAW_DIR": str(raw),
        "BUILD_PYTHON": str(setup.python),
        "SOURCE_DATE_EPOCH": str(setup.source.epoch),
        "PYTHONNOUSERSITE": "1",
        "PATH": f"{setup.python.parent}:{workshop.environ.get('PATH', '')}",  # ninja is beside the Python
        **handed,
    }
    logger.info("running setup.py, log in %s", log)
    wheels = run_logged([BUILD_SCRIPT], log, environ=environ, part=part).splitlines()
    if len(wheels) != 1:
        raise BuildError("the build made no wheel", setup.recipe.cell.id, f"the full log is {log}")
    return RawWheel(Path(wheels[0]), Toolchain.model_validate_json((raw / "toolchain.json").read_bytes()))


def log_path(workshop: Workshop, name: str) -> Path:
    """Where the log of that name is."""
    return workshop.cache / "logs" / f"{name}.log"
