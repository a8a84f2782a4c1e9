"""The container engine and the images that tests of containers use."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient

import container_images
from container_engine import Engine, engine, find_missing_requirement, skip_unless
from wheelfactory.build.environments import cpu_torch_version

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

KERNEL = "#include <hip/hip_runtime.h>\n__global__ void set(int *value) { *value = 7; }\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    skip_unless(find_missing_requirement())
    with engine(tmp_path_factory.mktemp("engine")) as held:
        yield held


@pytest.fixture(scope="module")
def client(running: Engine) -> Iterator[DockerClient]:
    client = DockerClient(base_url=running.url, timeout=300)
    yield client
    client.close()


@pytest.fixture(scope="module")
def rocm_pytorch(cache: Path, client: DockerClient) -> str:
    skip_unless(container_images.find_missing_requirement())
    return container_images.make_rocm_pytorch(cache, client)


@pytest.fixture(scope="module")
def hip_image(cache: Path, client: DockerClient) -> str:
    skip_unless(container_images.find_missing_requirement())
    return container_images.make_hip_image(cache, client)


def run_in_image(
    client: DockerClient, image: str, *command: str, network: str = "none", folder: Path | None = None
) -> str:
    """What a command prints in a container of its own, in which `folder` is /mnt.

    Raises `CalledProcessError` if it fails.
    """
    volumes = {str(folder): {"bind": "/mnt", "mode": "rw"}} if folder else {}
    box = client.containers.create(image, list(command), network_mode=network, volumes=volumes)
    try:
        box.start()
        ended = box.wait()["StatusCode"]
        # read only now, because dockerd can lose lines if they are followed while the container ends
        output: bytes = box.logs()
    finally:
        box.remove(force=True)
    if ended:
        raise subprocess.CalledProcessError(ended, command, output)
    return output.decode().strip()


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


def test_each_engine_has_no_image_at_first(tmp_path: Path) -> None:
    skip_unless(find_missing_requirement())
    with engine(tmp_path) as held:
        client = DockerClient(base_url=held.url)
        assert client.images.list() == []
        client.close()


def test_a_container_runs_without_a_network_and_its_exit_code_arrives(client: DockerClient, rocm_pytorch: str) -> None:
    assert run_in_image(client, rocm_pytorch, "true") == ""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_in_image(client, rocm_pytorch, "sh", "-c", "exit 7")
    assert caught.value.returncode == 7


def test_a_container_reads_and_writes_a_folder_of_this_machine(
    client: DockerClient, rocm_pytorch: str, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("from outside")
    assert run_in_image(
        client, rocm_pytorch, "sh", "-c", "cat /mnt/in; echo from inside > /mnt/out", folder=tmp_path
    ) == ("from outside")
    assert (tmp_path / "out").read_text() == "from inside\n"


def test_a_memory_limit_kills(client: DockerClient, rocm_pytorch: str) -> None:
    box = client.containers.run(
        rocm_pytorch,
        ["python", "-c", "bytearray(b'x') * (256 << 20)"],
        mem_limit="64m",
        memswap_limit="64m",
        network_mode="none",
        detach=True,
    )
    try:
        assert box.wait()["StatusCode"] == 128 + signal.SIGKILL
    finally:
        box.remove(force=True)


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
        deadline = time.monotonic() + 10
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
    deadline = time.monotonic() + 10
    while (alive(processes) or str(tmp_path) in loop_devices()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(processes) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text() + loop_devices()
    with engine(tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_rocm_image_is_like_amds_from_the_outside(client: DockerClient, rocm_pytorch: str) -> None:
    assert run_in_image(
        client, rocm_pytorch, "/opt/venv/bin/python", "-W", "ignore", "-c", "import torch; print(torch.__version__)"
    ) == (f"{cpu_torch_version()}+rocm7.2")
    assert run_in_image(
        client, rocm_pytorch, "sh", "-c", "which python hipcc; cat /opt/rocm/.info/version"
    ).split() == [
        "/opt/venv/bin/python",
        "/opt/rocm/bin/hipcc",
        "7.2.1-120",
    ]
    assert run_in_image(client, rocm_pytorch, "/opt/rocm/bin/hipcc", "--version").startswith("HIP version: 7.2.")


def test_pip_in_the_rocm_image_reaches_pypi(client: DockerClient, rocm_pytorch: str) -> None:
    command = ("pip", "download", "--quiet", "--no-deps", "--dest=/tmp", "einops==0.8.2")
    run_in_image(
        client, rocm_pytorch, "sh", "-c", f"{' '.join(command)} && test -s /tmp/einops-0.8.2-*.whl", network="host"
    )


def test_hipcc_in_the_hip_image_compiles_a_kernel(client: DockerClient, hip_image: str, tmp_path: Path) -> None:
    (tmp_path / "set.hip").write_text(KERNEL)
    run_in_image(
        client, hip_image, "hipcc", "--offload-arch=gfx942", "-c", "/mnt/set.hip", "-o", "/mnt/set.o", folder=tmp_path
    )
    assert b"gfx942" in (tmp_path / "set.o").read_bytes()
    assert run_in_image(client, hip_image, "/usr/bin/python3", "-c", "print('a Python')") == "a Python"
    assert run_in_image(client, hip_image, "cat", "/opt/rocm/.info/version") in run_in_image(
        client, hip_image, "hipcc", "--version"
    )
