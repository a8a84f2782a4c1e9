"""The build image of a cell: its Dockerfile, pulling its base image, and building it unless the engine has it.

It is a base image plus the cell's Python, torch and build tools. It depends on ROCm, torch and Python only, so cells
that differ in flash-attn or backend share one.
"""

from __future__ import annotations

import io
import re
import shlex
import tarfile
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from docker.errors import ImageNotFound
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape

from wheelfactory.build.engine import Engine, engine_error, engine_errors
from wheelfactory.build.environments import build_tool_requirements
from wheelfactory.build.executor import torch_requirement
from wheelfactory.core.cell import ANY_PYTHON, Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import DOCKER, content_key
from wheelfactory.core.process import LAST_LINES, open_log
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.origins import Image

UV_REQUIREMENT = "uv==0.13.8"
"""Installs Pythons and packages into images. Its version fixes the patch release of each Python."""

_ENVIRONMENT = "/opt/build"
# where the image links ROCm if it comes as Python packages: the default path that most tools use
_ROCM = "/opt/rocm"


@dataclass(frozen=True)
class Dockerfile:
    """A build image: its Dockerfile, its build context, and paths in it."""

    text: str
    files: Mapping[str, bytes]
    """The other files of the build context, by name."""
    python: str
    """Path of the interpreter to build with."""
    rocm: str
    """Path of ROCm."""

    @property
    def tag(self) -> str:
        """The image's tag: ``wheelfactory/build:`` and 16 digits of the context's sha256."""
        return f"wheelfactory/build:{content_key(self.context())}"

    def context(self) -> bytes:
        """The build context as a tar archive for docker's API; the same content gives the same bytes."""
        members = {"Dockerfile": self.text.encode(), **self.files}
        archive = BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, data in sorted(members.items()):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
        return archive.getvalue()


def render_dockerfile(matrix: Matrix, cell: Cell, *, slim: bool = False) -> Dockerfile:
    """Render the Dockerfile of a cell; with `slim`, on the base image without torch if its ROCm has one."""
    # Values of the matrix need no escaping: `matrix.forms` allows no characters that docker or a shell interprets.
    image, index = matrix.image(cell, slim=slim), matrix.rocm[cell.rocm].index
    version = image.python if cell.python == ANY_PYTHON else cell.python
    own_python, own_torch = version == image.python, matrix.has_torch(cell, image)
    python = image.python_path if own_torch else f"{_ENVIRONMENT}/bin/python"
    rocm = image.rocm_path or _ROCM
    # base images with torch have headers and venv, because torch was built in them
    for_python = ["python3-venv"] + ["python3-dev"] * own_python if image.torch is None else []
    text = _template().render(
        image=image,
        cell=cell,
        bin=str(PurePosixPath(python).parent),
        environment=_ENVIRONMENT,
        index=index,
        own_python=own_python,
        own_torch=own_torch,
        packages=sorted(["g++", "patchelf", *for_python]),
        python=version,
        python_path=python,
        rocm_packages=None if image.rocm_path else f"rocm[devel]=={cell.rocm}.*",
        rocm_path=rocm,
        torch_requirement=torch_requirement(cell),
        uv=UV_REQUIREMENT,
    )
    requirements = "".join(f"{line}\n" for line in build_tool_requirements())
    return Dockerfile(text, {"requirements.txt": requirements.encode()}, python, rocm)


@cache
def _template() -> Template:
    templates = Environment(
        loader=FileSystemLoader(DOCKER),
        autoescape=select_autoescape(),  # escapes HTML templates only
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["shell"] = shlex.quote
    return templates.get_template("Dockerfile.j2")


# Docker colours the stderr of a build step red
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_STEP = re.compile(r"^(?:Step|STEP) (\d+)/(\d+)")


def has_image(engine: Engine, reference: str) -> bool:
    """Whether the engine has an image. Raises `BuildError` if the engine fails."""
    with engine_errors(reference), suppress(ImageNotFound):
        engine.client.images.get(reference)
        return True
    return False


def pull_image(engine: Engine, image: Image, report_progress: ProgressCallback) -> None:
    """Pull a base image unless it exists, with progress in bytes. Raises `BuildError`."""
    if has_image(engine, image.reference):
        return
    free = engine.free_gb()
    if image.disk_gb and free is not None and free < image.disk_gb:
        found = f"no space left on device: it needs {image.disk_gb} GB, {engine.storage} has {free:.0f} GB"
        raise engine_error(found, image.tag)
    logger.info("pulling %s", image.reference)
    name, _, digest = image.reference.partition("@")
    repository, _, tag = name.rpartition(":")
    layers: dict[str, tuple[int, int]] = {}
    with engine_errors(image.reference):
        for event in engine.client.api.pull(repository, tag=digest or tag, stream=True, decode=True):
            if "error" in event:
                raise engine_error(event["error"], image.reference)
            _update_layers(event, layers)
            if layers:
                done, total = map(sum, zip(*layers.values(), strict=True))
                report_progress(done, total, "pulling")
        engine.client.images.get(image.reference)


def _update_layers(event: dict[str, Any], layers: dict[str, tuple[int, int]]) -> None:
    """Update a layer's (downloaded, total) bytes from an event; its total is known once its download starts."""
    detail = event.get("progressDetail") or {}
    if event.get("status") == "Downloading" and detail.get("total"):
        layers[event["id"]] = (int(detail["current"]), int(detail["total"]))
    elif event.get("id") in layers and event.get("status") in ("Download complete", "Extracting", "Pull complete"):
        _, total = layers[event["id"]]
        layers[event["id"]] = (total, total)


_SYSTEM = tuple(map(Path, ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/etc/ld.so.cache")))


def system_folders() -> list[Path]:
    """What programs of this machine need of its system; links to these are in the image of `import_system_image`."""
    return [path for path in _SYSTEM if path.exists() and not path.is_symlink()]


def import_system_image(engine: Engine) -> str:
    """Make an image without files, for containers that mount `system_folders`, unless it exists; return its tag."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in filter(Path.is_symlink, _SYSTEM):
            link = tarfile.TarInfo(path.name)
            link.type, link.linkname = tarfile.SYMTYPE, str(path.readlink())
            tar.addfile(link)
    tag = f"wheelfactory/system:{content_key(archive.getvalue())}"
    if not has_image(engine, tag):
        engine.client.api.import_image_from_data(archive.getvalue(), tag)
    return tag


def build_image(engine: Engine, dockerfile: Dockerfile, log: Path, report_progress: ProgressCallback) -> str:
    """Build a Dockerfile's image, unless one with the same content exists, and return its tag.

    The output of the build goes to `log`.

    Raises `BuildError` with the last lines and the path of the log.
    """
    if has_image(engine, dockerfile.tag):
        return dockerfile.tag
    logger.info("building the image %s, log in %s", dockerfile.tag, log)
    last: deque[str] = deque(maxlen=LAST_LINES)
    with engine_errors(dockerfile.tag):
        events = engine.client.api.build(
            fileobj=io.BytesIO(dockerfile.context()),
            custom_context=True,
            tag=dockerfile.tag,
            network_mode=engine.build_network,
            rm=True,
            forcerm=True,
            decode=True,
        )
        with open_log(log) as file:
            for event in events:
                text = _COLOUR.sub("", str(event.get("stream") or event.get("error") or ""))
                file.write(text)
                last.extend(line for line in text.splitlines() if line.strip())
                if match := _STEP.match(text):
                    report_progress(int(match[1]) - 1, int(match[2]), "building the image")
                if "error" in event:
                    raise _build_failure(dockerfile.tag, str(event["error"]), list(last), log)
    return dockerfile.tag


def remove_image(engine: Engine, reference: str) -> None:
    """Remove an image if the engine has it; what other images share with it stays. Raises `BuildError`."""
    with engine_errors(reference), suppress(ImageNotFound):
        engine.client.images.remove(reference)


def _build_failure(tag: str, error: str, last: list[str], log: Path) -> BuildError:
    known = engine_error(error, tag)
    tail = "\n".join(last)
    what = "cannot build the image" if known.what.startswith("the container engine refused") else known.what
    hint = known.hint if what == known.what else "a step of its Dockerfile failed"
    return BuildError(what, f"{tag}\n{tail}", f"{hint}; the full log is {log}")
