"""The executor that builds cells in containers, each with its image and a share of this machine."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

from wheelfactory.build.container import ResourceShare, run_in_container, run_wheel_in_container
from wheelfactory.build.engine import Engine, remove_containers, run_folder
from wheelfactory.build.executor import BuildHost, LocalExecutor, WheelProgram
from wheelfactory.build.image import Dockerfile, build_image, has_image, pull_image, remove_image, render_dockerfile
from wheelfactory.build.setup_py import log_path
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.matrix.facts import Context

# minimum memory of each parallel container: three compiles of the largest kind measured (1.2 GiB each), and the torch
# that setup.py imports
MIN_CONTAINER_GIB = 4.0

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ContainerExecutor:
    """Builds cells in containers of one engine, for one run of the factory."""

    context: Context
    engine: Engine
    run: Path
    """The run's folder (see `engine.run_folder`)."""
    share: ResourceShare
    """The resources of each container."""
    slim: bool = False
    triton_here: bool = False
    """Whether Triton cells are built on this machine: their wheels hold no compiled code, so they need no image."""
    _making: threading.Lock = field(default_factory=threading.Lock)
    """Prevents parallel cells from building the same image twice."""

    @property
    def parallel_cells(self) -> int:
        """Limited by one core and `MIN_CONTAINER_GIB` each."""
        return max(1, min(int(self.share.cores), int(self.share.memory_gib / MIN_CONTAINER_GIB)))

    def describe_host(self, cell: Cell) -> Host:
        """A share of this machine, its GPUs, and the ROCm of the image."""
        if self._is_here(cell):
            return self.context.host
        return replace(
            self.context.host,
            cores=max(1, int(self.share.cores)),
            memory_gib=self.share.memory_gib,
            rocm=cell.rocm,
            rocm_path=Path(self._dockerfile(cell).rocm),
        )

    def choose_cheapest(self, cells: Sequence[Cell]) -> Cell:
        """Choose a cell whose image exists, else a cell that uses the torch of its base image, else the first cell."""

        def missing(cell: Cell) -> tuple[bool, bool]:
            dockerfile, image = self._dockerfile(cell), self.context.matrix.image(cell, slim=self.slim)
            return not has_image(self.engine, dockerfile.tag), dockerfile.python != image.python_path

        return min(cells, key=missing)

    def prepare_host(self, cell: Cell, report_progress: ProgressCallback) -> BuildHost:
        """Build the cell's image if it is missing. Raises `BuildError` if that fails."""
        if self._is_here(cell):
            return LocalExecutor(self.context).prepare_host(cell, report_progress)
        dockerfile = self._dockerfile(cell)
        if not has_image(self.engine, dockerfile.tag):
            with self._making:
                pull_image(self.engine, self.context.matrix.image(cell, slim=self.slim), report_progress)
                log = log_path(self.context.cache, f"image-{dockerfile.tag.rpartition(':')[2]}")
                build_image(self.engine, dockerfile, log, report_progress)
        python = Path(dockerfile.python)
        return BuildHost(
            machine=self.describe_host(cell),
            python=python,
            ninja=python.parent / "ninja",
            environ={
                "HOME": "/tmp",  # noqa: S108 - of the container; the caller's user has no home there
                "PATH": f"{python.parent}:{PurePosixPath(dockerfile.rocm)}/bin:{_SYSTEM_PATH}",
                "ROCM_PATH": dockerfile.rocm,
                "WORK_DIR": "/tmp/flash-attn",  # noqa: S108 - compilers embed it, so it is the same for all wheels
            },
            run=partial(run_in_container, self.engine, dockerfile.tag, self.run, self.share),
        )

    def find_gate_host(self, cell: Cell) -> BuildHost | None:
        """The cell's build host; None if it is this machine."""
        return None if self._is_here(cell) else self.prepare_host(cell, ignore_progress)

    def run_wheel(self, program: WheelProgram) -> subprocess.CompletedProcess[str]:
        """Run it apart from this machine, but with its system."""
        return run_wheel_in_container(self.engine, self.run, self.share, program)

    def discard_host(self, cell: Cell) -> None:
        """Remove the cell's image, with its torch of some 13 GB; the base image stays for the next cell."""
        remove_image(self.engine, self._dockerfile(cell).tag)

    def split(self, count: int) -> ContainerExecutor:
        """An executor whose containers have an equal part each."""
        return replace(self, share=self.share.split(count))

    def stop(self) -> None:
        """Remove the run's containers."""
        remove_containers(self.engine, self.run)

    def _is_here(self, cell: Cell) -> bool:
        return self.triton_here and cell.backend is Backend.TRITON

    def _dockerfile(self, cell: Cell) -> Dockerfile:
        return render_dockerfile(self.context.matrix, cell, slim=self.slim)


@contextmanager
def open_containers(
    engine: Engine, memory_gib: float | None = None, *, slim: bool = False, triton_here: bool = False, context: Context
) -> Iterator[ContainerExecutor]:
    """Open an executor with all of this machine, or `memory_gib` of its memory; remove its containers on exit."""
    share = ResourceShare(float(context.host.cores), memory_gib or context.host.memory_gib)
    with run_folder(engine, context.cache) as run:
        yield ContainerExecutor(context, engine, run, share, slim, triton_here)
