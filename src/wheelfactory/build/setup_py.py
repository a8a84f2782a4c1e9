"""Run upstream's own setup.py through build_rocm.sh, on this machine or in a container, to make a raw wheel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.build.executor import BuildCommand, BuildHost
from wheelfactory.build.recipe import Recipe
from wheelfactory.build.sources import Source, unpack_source
from wheelfactory.core.errors import BuildError, SourceError
from wheelfactory.core.files import BUILD_SCRIPT, TOOLCHAIN_PROBE, read_file
from wheelfactory.core.models import parse_model
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.wheel.build_record import Toolchain


@dataclass(frozen=True)
class RawWheel:
    """A wheel as setup.py made it, and the toolchain of the build."""

    path: Path
    toolchain: Toolchain


@dataclass(frozen=True)
class SetupRun:
    """The inputs of one run of setup.py. `scratch` is a folder for its files alone."""

    recipe: Recipe
    source: Source
    build_host: BuildHost
    scratch: Path


@dataclass(frozen=True)
class SetupExtras:
    """What a run of setup.py needs beyond its recipe: variables, paths and a deadline (see `BuildCommand`)."""

    environ: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    deadline: float | None = None


def run_setup(setup: SetupRun, log: Path, extras: SetupExtras, report_progress: ProgressCallback) -> RawWheel:
    """Run setup.py, with its output in `log`, and return the wheel.

    Raises `BuildError` with the last lines and the path of the log, `SourceError` if the sources cannot be unpacked or
    setup.py reads other variables, `RunAgainError` at the deadline.
    """
    raw, source = setup.scratch / "raw", unpack_source(setup.source, setup.scratch / "source")
    _require_read(setup.recipe, source / "setup.py")
    command = BuildCommand(
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
            **extras.environ,
        },
        log=log,
        reads=(BUILD_SCRIPT, TOOLCHAIN_PROBE, source, *extras.reads),
        writes=(setup.scratch, *extras.writes),
        deadline=extras.deadline,
    )
    logger.info("running setup.py, log in %s", log)
    wheels = setup.build_host.run(command, report_progress).splitlines()
    if len(wheels) != 1:
        raise BuildError("setup.py made no wheel", setup.recipe.cell.id, f"the full log is {log}")
    probed = raw / "toolchain.json"
    refusal = BuildError("damaged toolchain file", str(probed), f"build the wheel again; the full log is {log}")
    return RawWheel(Path(wheels[0]), parse_model(Toolchain, read_file(probed, refusal), refusal))


def _require_read(recipe: Recipe, setup_py: Path) -> None:
    """Raise `SourceError` unless setup.py has the name of each variable that the recipe sets to more than FALSE."""
    text = setup_py.read_text(encoding="utf-8", errors="replace")
    unread = [name for name, value in recipe.setup_variables.items() if value != "FALSE" and name not in text]
    if unread:
        which = f"{', '.join(unread)}, for {recipe.cell.id}"
        hint = "find the new names in the sources, and change build/recipe.py"
        raise SourceError("setup.py of this release does not read", which, hint)


def log_path(cache: Path, name: str) -> Path:
    """The path of a build log."""
    return cache / "logs" / f"{name}.log"
