"""Remove containers that outlive their run: by a watcher process, and at the start of the next run.

The watcher is ``python -m wheelfactory.build.container.leftovers URL FOLDER``. Its stdin is a pipe that the run never
writes to. Linux closes the pipe when the run ends, even by SIGKILL, and the watcher then cleans up.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wheelfactory.build.container.engine import ENGINE_ERRORS, Engine, connect_engine, engine_errors
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.files import lock_folder, remove_scratch, scratch_dir

RUN_LABEL = "wheelfactory.run"
"""Label of every container: its run's folder, which the run keeps locked while it lives."""


@contextmanager
def run_folder(engine: Engine, cache: Path) -> Iterator[Path]:
    """Open a folder that identifies a run. On exit, or if this process is killed, a watcher (`main`) removes the run's
    containers.
    """
    remove_orphans(engine, cache)
    with (
        scratch_dir(cache) as folder,
        subprocess.Popen(
            [sys.executable, "-m", "wheelfactory.build.container.leftovers", engine.url, folder],
            stdin=subprocess.PIPE,  # the watcher waits for its end
            start_new_session=True,  # so that Ctrl-C does not reach the watcher
        ),
    ):
        yield folder


def remove_containers(engine: Engine, folder: Path) -> None:
    """Remove all containers of a run, also running ones. Raises `BuildError` if the engine does not answer."""
    for container, _ in _labelled(engine, f"{RUN_LABEL}={folder}"):
        _remove(engine, container)


def remove_orphans(engine: Engine, cache: Path) -> None:
    """Remove the containers of dead runs with this cache, as after a power cut."""
    # Runs with another cache may belong to another user, whose folders this process cannot check.
    for container, folder in _labelled(engine, RUN_LABEL):
        if folder.parent == cache and _is_over(folder):
            _remove(engine, container)


def _labelled(engine: Engine, label: str) -> list[tuple[str, Path]]:
    """The containers with a label, and the folders of their runs."""
    # one request for all: a container may disappear before a second request about it
    with engine_errors("its containers"):
        found = engine.client.api.containers(all=True, filters={"label": label})
    return [(container["Id"], Path(container["Labels"][RUN_LABEL])) for container in found]


def _remove(engine: Engine, container: str) -> None:
    with suppress(*ENGINE_ERRORS):  # another process is removing it; if not, the next run will
        engine.client.api.remove_container(container, force=True, v=True)


def _is_over(folder: Path) -> bool:
    """Whether a run has ended: no process locks its folder."""
    try:
        if folder.is_dir():
            with lock_folder(folder):
                return True
    except (FactoryError, OSError):  # locked, or owned by another user
        return False
    return True


def main(url: str, folder: Path) -> None:
    """Wait for the end of stdin, then remove the run's containers and unlocked scratch folders."""
    sys.stdin.buffer.read()
    with suppress(FactoryError):  # the engine is gone, and there is no one to report to
        remove_containers(connect_engine({"DOCKER_HOST": url}), folder)
    remove_scratch(folder.parent)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
