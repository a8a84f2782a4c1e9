"""Facts about the host, read from folders like those of ROCm, of the driver and of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fake_gpus import make_nodes
from wheelfactory.core.gpus import KFD_NODES
from wheelfactory.core.host import MIB, MemoryCgroup, cpu_name, memory_cgroups, read_host


def make_rocm(folder: Path, *, version: str | None = "6.2.4-120\n", hipcc: str = "#!/bin/sh\n") -> Path:
    """A folder that looks like ROCm."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/hipcc").write_text(hipcc)
    (folder / "bin/hipcc").chmod(0o755)
    if version is not None:
        (folder / ".info").mkdir()
        (folder / ".info/version").write_text(version)
    return folder


def test_each_arch_counts_once(tmp_path: Path) -> None:
    make_nodes(tmp_path / KFD_NODES, *[90402] * 8, 90010)
    assert read_host({"PATH": ""}, tmp_path).gpu_archs == ("gfx942", "gfx90a")


def test_cores_and_memory_are_the_usable_ones(tmp_path: Path) -> None:
    machine = read_host({"PATH": ""}, tmp_path)
    assert machine.cores == len(os.sched_getaffinity(0))
    assert 0 < machine.memory_gib <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


@pytest.mark.parametrize(
    ("info", "hipcc", "version"),
    [
        pytest.param("6.2.4-120\n", "", "6.2.4", id="patch release"),
        pytest.param("10.0\n", "", "10.0", id="no patch number"),
        pytest.param("unknown\n", "", None, id="no version"),
        pytest.param(None, "#!/bin/sh\necho 'HIP version: 6.4.43483-a187df25c'\n", "6.4.43483", id="hipcc says so"),
        pytest.param(None, "#!/bin/sh\necho 'no clang' >&2; exit 1\n", None, id="hipcc fails"),
        pytest.param(None, "#!/no/such/interpreter\n", None, id="hipcc does not start"),
    ],
)
def test_the_rocm_version_comes_from_its_info_file_else_from_hipcc(
    tmp_path: Path, info: str | None, hipcc: str, version: str | None
) -> None:
    rocm = make_rocm(tmp_path / "rocm", version=info, hipcc=hipcc)
    assert read_host({"ROCM_PATH": str(rocm), "PATH": ""}, tmp_path).rocm == version


def test_rocm_counts_only_with_a_hipcc(tmp_path: Path) -> None:
    (tmp_path / "opt/rocm/.info").mkdir(parents=True)
    (tmp_path / "opt/rocm/.info/version").write_text("7.2.1-120\n")
    assert read_host({"PATH": ""}, tmp_path).rocm is None
    rocm = make_rocm(tmp_path / "opt/rocm-6.2.4")
    found = read_host({"PATH": ""}, tmp_path)
    assert (found.rocm_path, found.rocm) == (rocm, "6.2.4")


def test_the_processor_has_the_name_that_the_kernel_gives(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model\t\t: 17\nmodel name\t: AMD EPYC 9654 96-Core Processor \nmodel name\t: 2\n")
    assert cpu_name(cpuinfo) == "AMD EPYC 9654 96-Core Processor"
    cpuinfo.write_text("processor\t: 0\n")
    assert cpu_name(cpuinfo) is None
    assert cpu_name(tmp_path / "absent") is None


V1, V2 = "4:memory:/job\n3:cpu,cpuacct:/\n0::/\n", "0::/user/job\n"


def made(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v1(folder: str, limit: int, usage: int, cached: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit * MIB}\n",
        f"{folder}/memory.usage_in_bytes": f"{usage * MIB}\n",
        f"{folder}/memory.stat": f"cache 5\ntotal_inactive_file {cached * MIB}\n",
        f"{folder}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }


def v2(folder: str, limit: str, usage: int, cached: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{usage * MIB}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {cached * MIB}\n",
        f"{folder}/memory.events": "low 0\noom 4\noom_kill 2\n",
    }


def found(text: str, root: Path) -> list[MemoryCgroup]:
    return list(memory_cgroups(text, root))


def test_the_own_group_and_those_above_it(tmp_path: Path) -> None:
    old = made(tmp_path / "v1", {**v1("memory/job", 1000, 400), **v1("memory", 8000, 500)})
    assert [(group.free_mib(), group.out_of_memory_kills()) for group in found(V1, old)] == [(600, 3), (7500, 3)]
    new = made(tmp_path / "v2", {**v2("user/job", str(1000 * MIB), 400), **v2("user", "max", 500)})
    assert [(group.free_mib(), group.out_of_memory_kills()) for group in found(V2, new)] == [(600, 2), (None, 2)]


def test_inactive_page_cache_counts_as_free(tmp_path: Path) -> None:
    root = made(
        tmp_path, {**v1("memory/job", 1000, 900, cached=300), **v2("user/job", str(1000 * MIB), 900, cached=200)}
    )
    assert found(V1, root)[0].free_mib() == 400
    assert found(V2, root)[0].free_mib() == 300


def test_in_a_container_the_own_group_is_at_the_mount(tmp_path: Path) -> None:
    root = made(tmp_path, v1("memory", 1000, 400))
    assert [group.free_mib() for group in found("4:memory:/docker/0123\n", root)] == [600]


def test_without_a_memory_cgroup_there_is_no_limit(tmp_path: Path) -> None:
    for text in ("", "nonsense", "4:cpu:/\n", "0::/gone\n"):
        assert found(text, tmp_path) == []
