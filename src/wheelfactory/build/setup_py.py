"""Recipe + sources -> raw wheel: upstream's own setup.py, run by build_rocm.sh, on a host and in an image alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.build.executor import BuildCommand, BuildHost
from wheelfactory.build.recipe import Recipe
from wheelfactory.build.sources import Source, unpack_source
from wheelfactory.core.checkout import BUILD_SCRIPT, TOOLCHAIN_PROBE
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import read_file
from wheelfactory.core.models import parse_model
from wheelfactory.core.progress import ProgressPart, logger
from wheelfactory.wheel.build_record import Toolchain


@dataclass(frozen=True)
class RawWheel:
    """What setup.py made, and what it was made with."""

    path: Path
    toolchain: Toolchain


@dataclass(frozen=True)
class SetupRun:
    """One run of setup.py: for which recipe, from which sources, where, and with which folder of its own for files."""

    recipe: Recipe
    source: Source
    build_host: BuildHost
    scratch: Path


@dataclass(frozen=True)
class SetupExtras:
    """What a run of setup.py is handed beside its recipe."""

    environ: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    deadline: float | None = None


def run_setup(setup: SetupRun, log: Path, handed: SetupExtras, part: ProgressPart) -> RawWheel:
    """Run setup.py with everything it needs handed to it, `handed` included; its output goes to `log`.

    Raises `BuildError` with the last lines and the place of the log, `SourceError` for sources that cannot be
    unpacked, `RunAgainError` if the time is up.
    """
    raw, source = setup.scratch / "raw", unpack_source(setup.source, setup.scratch / "source")
    log.parent.mkdir(parents=True, exist_ok=True)
    errand = BuildCommand(
        name=log.stem,
        argv=(str(BUILD_SCRIPT),),
        environ={
            **setup.build_host.environ,
            **setup.recipe.setup_variables,
            "SOURCE_DIR": str(source),
            "RAW_DIR": str(raw),
            "BUILD_PYTHON": str(setup.build_host.python),
            "SOURCE_DATE_EPOCH": str(setup.source.epoch),
            "PYTHONNOUSERSITE": "1",
            **handed.environ,
        },
        log=log,
        reads=(BUILD_SCRIPT, TOOLCHAIN_PROBE, source, *handed.reads),
        writes=(setup.scratch, *handed.writes),
        deadline=handed.deadline,
    )
    logger.info("running setup.py, log in %s", log)
    wheels = setup.build_host.run(errand, part).splitlines()
    if len(wheels) != 1:
        raise BuildError("the build made no wheel", setup.recipe.cell.id, f"the full log is {log}")
    probed = raw / "toolchain.json"
    refusal = BuildError("damaged toolchain file", str(probed), f"build the wheel again; the full log is {log}")
    return RawWheel(Path(wheels[0]), parse_model(Toolchain, read_file(probed, refusal), refusal))


def log_path(cache: Path, name: str) -> Path:
    """Where the log of that name is."""
    return cache / "logs" / f"{name}.log"
