"""Render the Dockerfile of a cell's build image: a base image plus the cell's Python, torch and build tools.

The image depends on ROCm, torch and Python only, so cells that differ in flash-attn or backend share one.
"""

from __future__ import annotations

import shlex
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import PurePosixPath

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape

from wheelfactory.build.environments import build_tool_requirements
from wheelfactory.build.executor import torch_requirement
from wheelfactory.core.cell import ANY_PYTHON, Cell
from wheelfactory.core.files import DOCKER, content_key
from wheelfactory.matrix.facts import Matrix

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
