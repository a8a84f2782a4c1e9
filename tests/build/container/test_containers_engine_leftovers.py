"""Containers that outlive their run: those of dead runs are removed, those of living ones are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from container_project import wait_until
from wheelfactory.build.engine import RUN_LABEL, Engine, remove_containers, remove_orphans, run_folder
from wheelfactory.core.files import scratch_dir

pytestmark = pytest.mark.slow


Start = Callable[[Path | None], str]


@pytest.fixture
def start(engine: Engine, base: str) -> Iterator[Start]:
    """Starts a container that runs for long, of the run that a folder stands for."""
    started: list[str] = []

    def begin(folder: Path | None) -> str:
        labels = {RUN_LABEL: str(folder)} if folder else {}
        command = ["sleep", "600"]
        container = engine.client.containers.run(base, command, detach=True, labels=labels, network_mode="none")
        started.append(str(container.id))
        return started[-1]

    yield begin
    for container in started:
        if exists(engine, container):
            engine.client.api.remove_container(container, force=True)


def exists(engine: Engine, container: str) -> bool:
    return container in {found["Id"] for found in engine.client.api.containers(all=True)}


def test_a_run_begins_by_removing_the_containers_of_dead_runs_with_its_cache(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    """As after a power cut. The folder of a run with another cache may be another user's, and hidden from us."""
    orphan, theirs, foreign = start(tmp_path / "gone"), start(tmp_path / "their-cache/gone"), start(None)
    with scratch_dir(tmp_path) as folder:
        living = start(folder)
        with run_folder(engine, tmp_path):
            assert not exists(engine, orphan)
        assert all(exists(engine, container) for container in (living, theirs, foreign))


def test_a_run_removes_only_its_own_containers(engine: Engine, start: Start, tmp_path: Path) -> None:
    own, other = (start(tmp_path / name) for name in ("own", "own-too"))
    remove_containers(engine, tmp_path / "own")
    assert not exists(engine, own) and exists(engine, other)


def test_parallel_runs_may_find_the_same_leftovers(engine: Engine, start: Start, tmp_path: Path) -> None:
    orphans = [start(tmp_path / "gone") for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(remove_orphans, engine, tmp_path) for _ in range(3)]:
            done.result()
    wait_until(lambda: not any(exists(engine, orphan) for orphan in orphans))
