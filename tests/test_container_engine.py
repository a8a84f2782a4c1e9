"""The container engine that tests use leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from docker import DockerClient

from container_engine import engine, find_missing_requirement, skip_unless

pytestmark = pytest.mark.slow

HOLD = """
import sys
import time
from pathlib import Path
from docker import DockerClient
from container_engine import engine
with engine(Path(sys.argv[1])) as held:
    DockerClient(base_url=held.url).ping()
    print(held.process, flush=True)
    time.sleep(600)
"""
"""A test run that has an engine, and is killed."""


def family(process: int) -> dict[int, str]:
    """A process and all its descendants, including those in containers, with their names."""
    found = {}
    with contextlib.suppress(OSError):  # one may end meanwhile
        found[process] = Path(f"/proc/{process}/comm").read_text().strip()
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in children.read_text().split():
                found |= family(int(child))
    return found


def alive(processes: dict[int, str]) -> list[str]:
    """The names of the processes that still run."""
    found = []
    for process, name in processes.items():
        with contextlib.suppress(OSError):  # it has ended
            found += [name] * (Path(f"/proc/{process}/comm").read_text().strip() == name)
    return found


def loop_devices() -> str:
    """The files that this machine's loop devices show."""
    return "".join(path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file"))


def waiting_image(client: DockerClient, folder: Path) -> str:
    """The tag of an image with only a program that waits for ever."""
    command = ["cc", "-static", "-x", "c", "-", "-o", str(folder / "wait")]
    subprocess.run(command, input="int pause(void); int main(void) { return pause(); }", text=True, check=True)
    with tarfile.open(folder / "image.tar", "w") as tar:
        tar.add(folder / "wait", "wait")
    client.api.import_image_from_file(str(folder / "image.tar"), "wait:1", changes=['CMD ["/wait"]'])
    return "wait:1"


def test_nothing_of_an_engine_is_left_when_it_ends_with_a_container_running(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_unless(find_missing_requirement())
    with engine(tmp_path) as held:
        client = DockerClient(base_url=held.url)
        client.containers.run(
            waiting_image(client, tmp_path_factory.mktemp("image")), network_mode="none", init=True, detach=True
        )
        client.close()
        processes = family(held.process)
        deadline = time.monotonic() + 300
        while "wait" not in processes.values() and time.monotonic() < deadline:
            processes = family(held.process)
        assert "wait" in alive(processes)
    assert alive(processes) == []
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text() + loop_devices()


def test_nothing_of_an_engine_runs_when_the_tests_are_killed_and_the_next_one_removes_its_files(tmp_path: Path) -> None:
    skip_unless(find_missing_requirement())
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout
        processes = family(int(tests.stdout.readline()))
        tests.kill()
    deadline = time.monotonic() + 300
    while (alive(processes) or str(tmp_path) in loop_devices()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(processes) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text() + loop_devices()
    with engine(tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
