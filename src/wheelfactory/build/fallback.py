"""The sources of flash-attention-amd -> its wheel: no label, the same bytes wherever and whenever it is built."""

from __future__ import annotations

import shutil
from pathlib import Path

from wheelfactory.build.environments import build_environment, build_requirements, pip_wheel
from wheelfactory.build.fallback_project import Project
from wheelfactory.core.cell import FALLBACK_NAME
from wheelfactory.core.digest import content_key
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import atomic_path, scratch_dir
from wheelfactory.core.progress import logger
from wheelfactory.wheel.rewrite import rewrite_wheel

EPOCH = 315532800
"""The time of everything in it: the first that a zip file can tell, 1980-01-01. Its sources have no time of their own,
as a checkout gives files that of the checkout."""


def build_fallback(project: Project, folder: Path, cache: Path) -> Path:
    """Write the wheel into `folder`, made by setuptools unless the cache has it. Raises `BuildError`."""
    made, path = _made(project, cache), folder / project.filename
    with atomic_path(path) as written:
        shutil.copyfile(made, written)
    return path


def _made(project: Project, cache: Path) -> Path:
    """The wheel in the cache, where it is kept by all that it is made from."""
    content = "\n".join([project.identity, *build_requirements()])
    kept = cache / "raw" / content_key(content) / project.filename
    if kept.is_file():
        return kept
    environment = build_environment(cache)
    logger.info("building %s", FALLBACK_NAME)
    with scratch_dir(cache) as scratch:
        project.write_sources(scratch / "source")
        pip_wheel(environment, scratch / "source", scratch / "raw", EPOCH)
        wheels = sorted((scratch / "raw").glob("*.whl"))
        if [wheel.name for wheel in wheels] != [project.filename]:
            which = ", ".join(wheel.name for wheel in wheels) or "nothing"
            raise BuildError("the build made another wheel", which, f"its sources promise {project.filename}")
        with atomic_path(kept) as written:
            rewrite_wheel(wheels[0], scratch).replace(written)
    return kept
