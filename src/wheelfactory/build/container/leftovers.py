"""Containers that outlive their run: prevented while it runs, found afterwards.

``python -m wheelfactory.build.container.leftovers URL FOLDER`` cleans up after a run when its process has ended. Its
stdin is a pipe that the run holds open and the kernel closes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wheelfactory.build.container.engine import ENGINE_ERRORS, Engine, connect_engine, engine_error
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.files import lock_folder, remove_scratch, scratch_dir

RUN_LABEL = "wheelfactory.run"
"""Of every container of ours: the folder that its run holds locked while it lives."""


@contextmanager
def run_folder(engine: Engine, cache: Path) -> Iterator[Path]:
    """The folder that stands for a run; its containers are removed at the end, even if this process is killed.

    A process of its own sees to that (`main`), which waits for this one to end.
    """
    remove_orphans(engine, cache)
    with (
        scratch_dir(cache) as folder,
        subprocess.Popen(
            [sys.executable, "-m", "wheelfactory.build.container.leftovers", engine.url, folder],
            stdin=subprocess.PIPE,  # never written to: it ends when this process does
            start_new_session=True,  # Ctrl-C is for this process; the other waits until it is done
        ),
    ):
        yield folder


def remove_containers(engine: Engine, folder: Path) -> None:
    """End and remove the containers of a run, running or not. Raises `BuildError` if the engine does not answer."""
    for container, _ in _labelled(engine, f"{RUN_LABEL}={folder}"):
        _remove(engine, container)


def remove_orphans(engine: Engine, cache: Path) -> None:
    """End and remove the containers of runs with this cache that are no more, as after a power cut.

    Of runs with another cache, which may be somebody else's, nobody here can tell whether they live.
    """
    for container, folder in _labelled(engine, RUN_LABEL):
        if folder.parent == cache and _is_over(folder):
            _remove(engine, container)


def _labelled(engine: Engine, label: str) -> list[tuple[str, Path]]:
    """The containers with a label, and the folders of their runs; by one request, as any may go before a second."""
    try:
        found = engine.client.api.containers(all=True, filters={"label": label})
    except ENGINE_ERRORS as error:
        raise engine_error(error, "its containers") from None
    return [(container["Id"], Path(container["Labels"][RUN_LABEL])) for container in found]


def _remove(engine: Engine, container: str) -> None:
    with suppress(*ENGINE_ERRORS):  # somebody was faster, or is at it; what is left the next run finds
        engine.client.api.remove_container(container, force=True, v=True)


def _is_over(folder: Path) -> bool:
    """Whether nobody holds the folder of a run."""
    try:
        if folder.is_dir():
            with lock_folder(folder):
                return True
    except (FactoryError, OSError):  # held, or not ours to ask
        return False
    return True


def main(url: str, folder: Path) -> None:
    """Wait for the end of stdin, then remove the run's containers and the scratch folders that nobody holds."""
    sys.stdin.buffer.read()
    with suppress(FactoryError):  # the engine is gone, and nobody is left to be told
        remove_containers(connect_engine({"DOCKER_HOST": url}), folder)
    remove_scratch(folder.parent)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
