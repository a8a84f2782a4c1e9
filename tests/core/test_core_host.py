"""Facts about the host, read from folders like those of ROCm and of the driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fake_gpus import make_nodes
from wheelfactory.core import host
from wheelfactory.core.host import cpu_name, find_rocm, read_host


@pytest.fixture(autouse=True)
def opt_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ROCm in place of the one that this machine may have in /opt."""
    monkeypatch.setattr(host, "OPT_ROCM", make_rocm(tmp_path / "opt/rocm"))


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
    nodes = make_nodes(tmp_path, *[90402] * 8, 90010)

    assert read_host({"PATH": ""}, nodes).gpu_archs == ("gfx942", "gfx90a")


def test_cores_and_memory_are_the_usable_ones(tmp_path: Path) -> None:
    machine = read_host({"PATH": ""}, tmp_path)

    assert machine.cores == len(os.sched_getaffinity(0))
    assert 0 < machine.memory_gib <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param("6.2.4-120\n", "6.2.4", id="patch release"),
        pytest.param("7.2.0-1\n", "7.2.0", id="first of a minor"),
        pytest.param("10.0\n", "10.0", id="no patch number"),
        pytest.param("unknown\n", None, id="no version"),
        pytest.param("", None, id="empty"),
    ],
)
def test_the_rocm_version_comes_from_its_info_file(tmp_path: Path, text: str, version: str | None) -> None:
    rocm = make_rocm(tmp_path / "rocm", version=text)

    assert read_host({"ROCM_PATH": str(rocm), "PATH": ""}, tmp_path).rocm == version


@pytest.mark.parametrize(
    ("hipcc", "version"),
    [
        pytest.param("#!/bin/sh\necho 'HIP version: 6.4.43483-a187df25c'\n", "6.4.43483", id="it says so"),
        pytest.param("#!/bin/sh\necho 'no clang' >&2; exit 1\n", None, id="it fails"),
        pytest.param("#!/no/such/interpreter\n", None, id="it does not start"),
    ],
)
def test_without_an_info_file_the_version_comes_from_hipcc(tmp_path: Path, hipcc: str, version: str | None) -> None:
    rocm = make_rocm(tmp_path / "rocm", version=None, hipcc=hipcc)

    assert read_host({"ROCM_PATH": str(rocm), "PATH": ""}, tmp_path).rocm == version


def test_rocm_is_searched_in_the_environment_then_on_path_then_in_opt(tmp_path: Path) -> None:
    names = ("ROCM_PATH", "ROCM_HOME", "PATH")
    folders = [make_rocm(tmp_path / name) for name in names]
    environ = {"ROCM_PATH": str(folders[0]), "ROCM_HOME": str(folders[1]), "PATH": f"{folders[2]}/bin"}
    found = []
    for name in names:
        found.append(find_rocm(environ))
        environ[name] = ""

    assert found == folders
    assert find_rocm(environ) == host.OPT_ROCM


def test_a_link_to_hipcc_on_path_is_resolved(tmp_path: Path) -> None:
    rocm = make_rocm(tmp_path / "rocm")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/hipcc").symlink_to(rocm / "bin/hipcc")

    assert find_rocm({"PATH": f"{tmp_path}/bin"}) == rocm


def test_a_folder_without_hipcc_is_no_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "OPT_ROCM", tmp_path)

    assert find_rocm({"ROCM_PATH": str(tmp_path), "PATH": ""}) is None
    assert read_host({"PATH": ""}, tmp_path).rocm is None


def test_the_processor_has_the_name_that_the_kernel_gives(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model\t\t: 17\nmodel name\t: AMD EPYC 9654 96-Core Processor \nmodel name\t: 2\n")
    assert cpu_name(cpuinfo) == "AMD EPYC 9654 96-Core Processor"
    cpuinfo.write_text("processor\t: 0\n")
    assert cpu_name(cpuinfo) is None
    assert cpu_name(tmp_path / "absent") is None
