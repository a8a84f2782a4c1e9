"""Containers that outlive their run: prevented while it runs, found afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from docker.errors import NotFound

from wheelfactory.containers.engine import Engine
from wheelfactory.errors import FactoryError
from wheelfactory.files import locked, scratch_dir

LABEL = "wheelfactory.run"
"""Of every container of ours: the folder that its run holds locked while it lives."""


@contextmanager
def run_folder(engine: Engine, cache: Path) -> Iterator[Path]:
    """The folder that stands for a run; its containers are removed at the end, even if this process is killed.

    A process of its own sees to that (`reaper`), which waits for this one to end.
    """
    remove_orphans(engine)
    with (
        scratch_dir(cache) as folder,
        subprocess.Popen(
            [sys.executable, "-m", "wheelfactory.containers.reaper", engine.url, folder],
            stdin=subprocess.PIPE,  # never written to: it ends when this process does
            start_new_session=True,  # Ctrl-C is for this process; the other waits until it is done
        ),
    ):
        yield folder


def remove_containers(engine: Engine, folder: Path) -> None:
    """End and remove the containers of a run, running or not."""
    for container in engine.client.containers.list(all=True, filters={"label": f"{LABEL}={folder}"}):
        with suppress(NotFound):
            container.remove(force=True, v=True)


def remove_orphans(engine: Engine) -> None:
    """End and remove the containers of runs that are no more, as after a power cut."""
    for container in engine.client.containers.list(all=True, filters={"label": LABEL}):
        folder = Path(container.labels[LABEL])
        if _is_over(folder):
            with suppress(NotFound):
                container.remove(force=True, v=True)


def _is_over(folder: Path) -> bool:
    """Whether nobody holds the folder of a run."""
    if not folder.is_dir():
        return True
    try:
        with locked(folder):
            return True
    except FactoryError:
        return False
