"""What a container is made with, and how what it says is cut into lines; no engine is asked."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from container_project import CELL, write_matrix
from wheelfactory.build.container import ResourceShare, _lines, container_options
from wheelfactory.build.container_executor import ContainerExecutor
from wheelfactory.build.engine import Engine
from wheelfactory.build.executor import BuildCommand
from wheelfactory.core.cell import Backend
from wheelfactory.core.files import BUILD_SCRIPT
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix

RUN = Path("/cache/.scratch-run")
GPU = [Path("/dev/kfd"), Path("/dev/dri")]


@pytest.fixture
def nowhere() -> Engine:
    """An engine that nobody serves; whoever asks it fails."""
    client = docker.DockerClient(base_url="unix:///none.sock", version="1.41")
    return Engine(
        client,
        "unix:///none.sock",
        user="1000:100",
        build_network=None,
        limits_memory=True,
        limits_cores=True,
        extra_options={},
        storage=Path("/nowhere"),
    )


@pytest.fixture
def command() -> BuildCommand:
    return BuildCommand(
        name="cell",
        argv=("/checkout/build_rocm.sh", "one word"),
        environ={"SOURCE_DIR": "/cache/source"},
        log=Path("/cache/cell.log"),
        reads=(BUILD_SCRIPT, Path("/cache/source")),
        writes=(Path("/cache/scratch"), Path("/cache/store")),
    )


@pytest.fixture
def options(nowhere: Engine, command: BuildCommand) -> dict[str, Any]:
    return container_options(nowhere, command, ResourceShare(2.5, 3.0), RUN, [])


def test_a_container_has_no_network_capability_new_privileges_or_gpu(options: dict[str, Any]) -> None:
    assert options["network_mode"] == "none"
    assert options["cap_drop"] == ["ALL"]
    assert options["security_opt"] == ["no-new-privileges", "label=disable"]
    assert options.keys().isdisjoint({"privileged", "devices", "group_add", "cap_add", "ipc_mode"})


def test_a_container_is_limited_to_its_share_without_swap(options: dict[str, Any]) -> None:
    assert options["nano_cpus"] == 2_500_000_000
    assert options["mem_limit"] == options["memswap_limit"] == 3 * 1024**3


def test_a_container_with_a_gpu_has_amds_documented_options(nowhere: Engine, command: BuildCommand) -> None:
    """The list is that of AMD's documentation of its images."""
    options = container_options(nowhere, command, ResourceShare(1, 1), RUN, GPU)
    assert options["devices"] == ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]
    assert options["group_add"][0] == "video"
    assert options["cap_add"] == ["SYS_PTRACE"]
    assert "seccomp=unconfined" in options["security_opt"]
    assert options["ipc_mode"] == "host"
    assert options["network_mode"] == "none" and options["cap_drop"] == ["ALL"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_container_joins_the_groups_of_the_devices_by_number(
    nowhere: Engine, command: BuildCommand, tmp_path: Path
) -> None:
    kfd, dri = tmp_path / "kfd", tmp_path / "dri"
    dri.mkdir()
    for node, group in ((kfd, 109), (dri / "renderD128", 110), (dri / "renderD129", 110)):
        node.touch()
        os.chown(node, -1, group)
    options = container_options(nowhere, command, ResourceShare(1, 1), RUN, [kfd, dri])
    assert options["group_add"] == ["video", "109", str(dri.stat().st_gid), "110"]


def test_an_engine_without_limits_gets_none(nowhere: Engine, command: BuildCommand) -> None:
    """It would refuse the container."""
    unlimited = replace(nowhere, limits_memory=False, limits_cores=False)
    options = container_options(unlimited, command, ResourceShare(1, 1), RUN, [])
    assert options.keys().isdisjoint({"mem_limit", "memswap_limit", "nano_cpus"})


def test_a_path_read_and_written_is_mounted_once(nowhere: Engine, command: BuildCommand) -> None:
    """As the ledger, when shards are cut by it; engines refuse a place that is mounted twice."""
    ledger = Path("/cache/ledger.jsonl")
    both = replace(command, reads=(*command.reads, ledger), writes=(*command.writes, ledger))
    mounts = container_options(nowhere, both, ResourceShare(1, 1), RUN, [])["mounts"]
    assert [mount["ReadOnly"] for mount in mounts if mount["Target"] == str(ledger)] == [False]


@pytest.mark.parametrize(
    ("share", "count"),
    [
        (ResourceShare(64, 64), 16),
        (ResourceShare(4, 64), 4),
        (ResourceShare(0.5, 64), 1),
        (ResourceShare(4, 1), 1),
    ],
    ids=["little memory", "few cores", "no whole core", "no memory for one"],
)
def test_parallel_containers_have_a_core_and_four_gib_each(
    nowhere: Engine, tmp_path: Path, share: ResourceShare, count: int
) -> None:
    assert _executor(nowhere, tmp_path, share).parallel_cells == count


def test_a_split_executor_gives_each_build_host_its_part_and_at_least_a_core(nowhere: Engine, tmp_path: Path) -> None:
    part = _executor(nowhere, tmp_path, ResourceShare(3, 12)).split(4)
    host = part.describe_host(CELL)
    assert (host.cores, host.memory_gib) == (1, 3)
    assert part.run == RUN


def test_a_build_host_has_the_rocm_of_its_image(nowhere: Engine, tmp_path: Path) -> None:
    executor = _executor(nowhere, tmp_path, ResourceShare(2, 8))
    own = replace(executor.context.host, rocm="6.1", rocm_path=Path("/usr"), gpu_archs=("gfx942",))
    host = replace(executor, context=replace(executor.context, host=own)).describe_host(CELL)
    assert (host.rocm, host.rocm_path, host.gpu_archs) == ("7.2", Path("/opt/rocm"), ("gfx942",))


def test_triton_cells_are_built_on_this_machine_if_asked_to(nowhere: Engine, tmp_path: Path) -> None:
    executor = replace(_executor(nowhere, tmp_path, ResourceShare(2, 8)), triton_here=True)
    cell = replace(CELL, backend=Backend.TRITON)
    assert (executor.describe_host(cell), executor.find_gate_host(cell)) == (executor.context.host, None)
    assert executor.describe_host(replace(CELL, backend=Backend.CK)).rocm == CELL.rocm


def _executor(engine: Engine, folder: Path, share: ResourceShare) -> ContainerExecutor:
    matrix = load_matrix(write_matrix(folder / "matrix.yaml"))
    return ContainerExecutor(Context(matrix, Host(cores=64, memory_gib=256), {}, folder), engine, RUN, share)


def _said(*pieces: bytes) -> list[str]:
    return list(_lines([(None, piece) for piece in pieces], bytearray()))


def test_chunks_are_joined_to_lines_of_whole_characters() -> None:
    text = "grün ✓\n".encode()
    assert [_said(text[:cut], text[cut:]) for cut in range(len(text))] == [["grün ✓\n"]] * len(text)
    assert _said(b"[1/2] on", b"e\n[2/", b"2] two\n\xff") == ["[1/2] one\n", "[2/2] two\n", "\ufffd\n"]


def test_stdout_is_collected_separately() -> None:
    printed = bytearray()
    output = [(b"/raw/a.", None), (None, b"note\n"), (b"whl\n", b"more\n")]
    assert list(_lines(output, printed)) == ["note\n", "more\n"]
    assert printed == b"/raw/a.whl\n"
