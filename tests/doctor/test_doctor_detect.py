"""Examination of machines and Pythons, with fake driver trees and real interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import packaging
import pytest

from doctor.fake_machines import (
    MACHINES,
    MISSING_LIBRARY,
    ROCM_TORCH,
    TORCHES,
    FakeTorch,
    Gpu,
    fake_torch,
    make_python,
    make_root,
    write,
    write_metadata,
)
from doctor.known import FACTS, PROBE_TEXT
from wheelfactory.core.errors import InputError
from wheelfactory.core.query import Interpreter, query_program
from wheelfactory.doctor.detect import (
    detect_machine,
    find_container,
    find_rocm,
    read_devices,
    read_gpus,
    read_python,
    read_torch,
    read_user,
)
from wheelfactory.doctor.installed_flash_attn import find_foreign
from wheelfactory.doctor.machine import InstalledTorch

SECONDS = 60.0
PACKAGES = ("triton", *FACTS.rocm_triton_packages, "einops")


def test_the_driver_lists_archs_and_product_names(tmp_path: Path) -> None:
    expected = [
        ("8 x MI300X", ("gfx942",) * 8, ("AMD Instinct MI300X OAM",) * 8),
        ("MI210", ("gfx90a",), ("AMD Instinct MI210",)),
        ("RX 7900 XTX", ("gfx1100",), ("",)),
        ("RX 6800", ("gfx1030",), ("Radeon RX 6800",)),
        ("iGPU and RX 7900 XTX", ("gfx1036", "gfx1100"), ("", "")),
        ("no GPU", (), ()),
    ]
    for machine, archs, names in expected:
        assert read_gpus(make_root(tmp_path / machine, MACHINES[machine]), None, {}) == (archs, names)


ROCMINFO = """\
*******
Agent 1
*******
  Name:                    AMD Ryzen AI MAX+ 395
  Uuid:                    CPU-XX
  Marketing Name:          AMD Ryzen AI MAX+ 395
*******
Agent 2
*******
  Name:                    gfx1151
  Uuid:                    GPU-XX
  Marketing Name:          AMD Radeon 8060S
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx1151
*******
Agent 3
*******
  Name:                    gfx1100
  Uuid:                    GPU-0123456789abcdef
  Marketing Name:          Radeon RX 7900 XTX
"""


def program(path: Path, output: str, code: int = 0) -> None:
    """Write a program that prints `output`."""
    write(path, f"#!/bin/sh\ncat <<'END'\n{output}END\nexit {code}\n").chmod(0o755)


def test_without_the_driver_rocminfo_lists_gpus_as_under_wsl(tmp_path: Path) -> None:
    program(tmp_path / "rocm/bin/rocminfo", ROCMINFO)
    found = read_gpus(tmp_path, str(tmp_path / "rocm"), {"PATH": os.environ["PATH"]})
    assert found == (("gfx1151", "gfx1100"), ("AMD Radeon 8060S", "Radeon RX 7900 XTX"))


def test_without_rocminfo_the_enumerator_lists_archs(tmp_path: Path) -> None:
    program(tmp_path / "bin/rocminfo", "ROCk module is NOT loaded\n", code=1)
    program(tmp_path / "bin/rocm_agent_enumerator", "gfx000\ngfx90a\ngfx90a\n")
    found = read_gpus(tmp_path, None, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert found == (("gfx90a", "gfx90a"), ("", ""))


def test_rocm_counts_with_a_version_and_without_a_hipcc(tmp_path: Path) -> None:
    for folder, version in (("rocm-6.4.3", "6.4.3-128"), ("rocm-7.14.1", "7.14.1")):
        write(tmp_path / f"opt/{folder}/.info/version", f"{version}\n")
    program(tmp_path / "opt/rocm/bin/hipcc", "no version\n")
    assert find_rocm(tmp_path, {}) == ("7.14.1", str(tmp_path / "opt/rocm-7.14.1"))


def test_device_files_have_their_group(tmp_path: Path) -> None:
    root = make_root(tmp_path, MACHINES["MI210"])
    os.chown(root / "dev/kfd", -1, 54321) if os.geteuid() == 0 else None
    kfd, node = read_devices(root)
    assert (kfd.path, kfd.exists, kfd.usable) == ("/dev/kfd", True, True)
    assert (node.path, node.exists, node.usable) == ("/dev/dri/renderD128", True, True)
    if os.geteuid() == 0:
        assert kfd.group == "54321"  # a group without a name
        assert node.group == "root"


def test_the_user_and_groups_are_names() -> None:
    def run_id(option: str) -> str:
        return subprocess.run(["id", option], check=True, capture_output=True, text=True).stdout.strip()

    user, groups = read_user()
    assert user == run_id("-un")
    assert set(groups) == set(run_id("-Gn").split())


_WITHOUT_ROOT = """
import grp, os, sys  # grp: imported while the interpreter's files are readable
from pathlib import Path
from wheelfactory.doctor.detect import read_devices
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(read_devices(Path(sys.argv[1]))[0].usable)
"""


def test_a_device_without_permission_is_not_usable() -> None:
    with TemporaryDirectory() as folder:  # pytest's own directory is closed to other users
        Path(folder).chmod(0o755)
        root = make_root(Path(folder), MACHINES["MI210"])
        (root / "dev/kfd").chmod(0o000)
        done = subprocess.run([sys.executable, "-c", _WITHOUT_ROOT, root], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_a_container_is_recognized_by_its_marker(tmp_path: Path) -> None:
    expected: list[tuple[Mapping[str, str], Mapping[str, str], str | None]] = [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {"container": "podman"}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/images/rocm.sif"}, "apptainer"),
        ({}, {"SINGULARITY_CONTAINER": "/images/rocm.sif"}, "apptainer"),
        ({}, {"FLATPAK_ID": "org.example.App"}, "flatpak"),
        ({".flatpak-info": ""}, {}, "flatpak"),
        ({}, {"SNAP": "/snap/app/1"}, "snap"),
        ({"run/.containerenv": "", "run/.toolboxenv": ""}, {}, "toolbox"),
        ({"proc/self/mounts": "lxcfs /proc/cpuinfo fuse.lxcfs rw 0 0\n"}, {}, "lxc"),
        ({"run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n"}, {}, "wsl"),
        ({"proc/sys/kernel/osrelease": "6.12.0-amd64\n"}, {}, None),
        ({}, {"container": "lxc"}, "lxc"),
    ]
    for number, (files, environ, container) in enumerate(expected):
        root = tmp_path / str(number)
        for name, text in files.items():
            write(root / name, text)
        assert find_container(root, environ) == container


def test_a_python_without_packages(tmp_path: Path) -> None:
    executable = make_python(tmp_path / "env")
    python, answers = read_python(Interpreter([executable], {}, SECONDS), PROBE_TEXT, PACKAGES)
    torch, packages = answers["torch"], answers["packages"]
    assert python.version == ".".join(map(str, sys.version_info[:3]))
    assert python.tag == f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert (python.executable, python.system) == (executable, "Linux")
    assert python.glibc == os.confstr("CS_GNU_LIBC_VERSION").split()[1]  # type: ignore[union-attr] # glibc is here
    assert (python.pip, python.externally_managed, torch, packages) == (None, False, None, {})


def test_a_torch_on_pythonpath_is_found_and_one_in_the_working_directory_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "torch/__init__.py", ROCM_TORCH.code)
    monkeypatch.chdir(tmp_path)
    assert read_python(Interpreter([sys.executable], {}, SECONDS), PROBE_TEXT, PACKAGES)[1]["torch_found"] is False
    environ = {"PYTHONPATH": str(tmp_path)}
    answers = read_python(Interpreter([sys.executable], environ, SECONDS), PROBE_TEXT, PACKAGES)[1]
    assert (answers["torch"], answers["torch_found"]) == (None, True)  # found, without metadata
    assert read_torch(Interpreter([sys.executable], environ, SECONDS), "", PROBE_TEXT).version == "2.9.1+rocm6.4"


def test_an_externally_managed_python_is_recognized(tmp_path: Path) -> None:
    """The standard library is linked into a directory that can hold Debian's marker."""
    stdlib = Path(os.__file__).parent
    home = tmp_path / "lib" / stdlib.name
    home.mkdir(parents=True)
    for entry in stdlib.iterdir():
        if entry.name != "EXTERNALLY-MANAGED":
            (home / entry.name).symlink_to(entry)
    environ = {"PYTHONHOME": f"{tmp_path}:{sys.base_exec_prefix}"}
    base = os.path.realpath(sys.executable)
    assert not read_python(Interpreter([base], environ, SECONDS), PROBE_TEXT, PACKAGES)[0].externally_managed
    write(home / "EXTERNALLY-MANAGED", "[externally-managed]\n")
    assert read_python(Interpreter([base], environ, SECONDS), PROBE_TEXT, PACKAGES)[0].externally_managed


def test_other_files_are_no_python() -> None:
    for name in ("/nowhere/python", "/dev/null", "/bin/false", "/bin/true"):
        with pytest.raises(InputError, match=f"cannot examine this Python: {name}"):
            read_python(Interpreter([name], {}, SECONDS), PROBE_TEXT, PACKAGES)


ROCM = InstalledTorch("2.9.1+rocm6.4", hip="6.4.43482-0f2d60242", cxx11_abi=True, sees_gpu=False)
CUDA = InstalledTorch("2.9.1+cu128", cuda="12.8", cxx11_abi=True, sees_gpu=False)
LISTING = "cuda.get_arch_list = lambda: ['gfx90a:xnack-', 'gfx942']\n"
FLAGS = "cuda.get_arch_list = list\n_C._cuda_getArchFlags = lambda: 'gfx1100 gfx1201'\n"
"""Without a GPU, `get_arch_list` of torch is empty, and only the flags of its build say for which GPUs it has code."""
AMD_GPUS, NVIDIA_GPU = ("gfx942:sramecc+:xnack-", "gfx1100"), ("NVIDIA H200",)


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        (TORCHES["rocm"], ROCM),
        (TORCHES["cuda"], CUDA),
        (TORCHES["cpu"], InstalledTorch("2.9.1+cpu", cxx11_abi=True, sees_gpu=False)),
        (TORCHES["broken"], InstalledTorch("2.9.1+rocm6.4", error=f"ImportError: {MISSING_LIBRARY}")),
        (TORCHES["crashing"], InstalledTorch("2.9.1+rocm6.4", error="killed by SIGSEGV")),
        (TORCHES["hanging"], InstalledTorch("2.9.1+rocm6.4", error="no answer within 0.2 s")),
        (
            fake_torch("2.9.1+rocm6.4", hip=ROCM.hip, archs=AMD_GPUS),
            replace(ROCM, sees_gpu=True, archs=("gfx942", "gfx1100")),
        ),
        (fake_torch("2.9.1+cu128", cuda="12.8", archs=NVIDIA_GPU), replace(CUDA, sees_gpu=True)),
        (FakeTorch(ROCM.version, ROCM_TORCH.code + LISTING), replace(ROCM, arch_list=("gfx90a", "gfx942"))),
        (FakeTorch(ROCM.version, ROCM_TORCH.code + FLAGS), replace(ROCM, arch_list=("gfx1100", "gfx1201"))),
        (FakeTorch(ROCM.version, ROCM_TORCH.code + "version.rocm = '10.0.0'\n"), replace(ROCM, rocm="10.0.0")),
    ],
    ids=[*TORCHES, "AMD GPUs", "NVIDIA GPU", "archs", "archs of its flags", "ROCm"],
)
def test_a_torch_is_described_or_its_failure(tmp_path: Path, torch: FakeTorch, expected: InstalledTorch) -> None:
    executable = make_python(tmp_path / "env", torch)
    seconds = 0.2 if torch is TORCHES["hanging"] else SECONDS
    found = read_torch(Interpreter([executable], {}, seconds), torch.version, PROBE_TEXT)
    assert replace(found, libraries="") == expected
    assert found.libraries.endswith("site-packages/torch/lib") == (not found.error)


@pytest.mark.slow
def test_a_gpu_query_that_hangs_keeps_torchs_description(tmp_path: Path) -> None:
    code = ROCM_TORCH.code + "import time\ncuda.is_available = lambda: time.sleep(600)\n"
    executable = make_python(tmp_path / "env", FakeTorch(ROCM_TORCH.version, code))
    detected = read_torch(Interpreter([executable], {}, 4.0), ROCM_TORCH.version, PROBE_TEXT)
    assert (detected.hip, detected.sees_gpu) == ("6.4.43482-0f2d60242", None)
    assert detected.gpu_error == "no answer within 4 s"


def test_a_module_flash_attn_without_flash_attn_is_found_with_its_owner(tmp_path: Path) -> None:
    executable = make_python(tmp_path / "env")
    (site,) = tmp_path.glob("env/lib/python3*/site-packages")
    assert find_foreign(Interpreter([executable], {}, SECONDS)) == ("", "")
    write(site / "flash_attn/__init__.py")
    assert find_foreign(Interpreter([executable], {}, SECONDS)) == (str(site), "")
    write_metadata(site, "fake-flash-attention", "2.6.3")
    write(site / "fake_flash_attention-2.6.3.dist-info/RECORD", "flash_attn/__init__.py,,\n")
    assert find_foreign(Interpreter([executable], {}, SECONDS)) == (str(site), "fake-flash-attention 2.6.3")


def test_what_torch_requires_and_what_pins_torch_is_read(tmp_path: Path) -> None:
    executable = make_python(tmp_path / "env", ROCM_TORCH)
    (site,) = tmp_path.glob("env/lib/python3*/site-packages")
    for name, version, line in (
        (
            "torch",
            "2.9.1+rocm6.4",
            "Requires-Dist: triton==3.5.1; platform_system == 'Linux'\nRequires-Dist: absent; extra == 'x'",
        ),
        ("vllm", "0.33.0", "Requires-Dist: torch==2.14.0"),
        ("triton", "3.6.0", ""),
    ):
        write_metadata(site, name, version)
        with next(site.glob(f"{name}-*.dist-info")).joinpath("METADATA").open("a") as metadata:
            metadata.write(f"{line}\n")
    (site / "packaging").symlink_to(Path(packaging.__file__).parent)
    answers = read_python(Interpreter([executable], {}, SECONDS), PROBE_TEXT, ("triton", "vllm"))[1]
    assert answers["unmet"] == [["triton", "==3.5.1", "3.6.0"]]
    assert answers["pins"] == {"vllm": "==2.14.0"}


def test_a_second_index_of_pip_is_named(tmp_path: Path) -> None:
    executable = make_python(tmp_path / "env")
    home = {"HOME": str(tmp_path)}
    assert read_python(Interpreter([executable], home, SECONDS), PROBE_TEXT, ())[0].pip_extra == ""
    path = write(tmp_path / ".config/pip/pip.conf", "[global]\nextra-index-url = https://index.example/simple\n")
    assert read_python(Interpreter([executable], home, SECONDS), PROBE_TEXT, ())[0].pip_extra == str(path)
    extra = {**home, "PIP_EXTRA_INDEX_URL": "https://index.example/simple"}
    assert read_python(Interpreter([executable], extra, SECONDS), PROBE_TEXT, ())[0].pip_extra == "PIP_EXTRA_INDEX_URL"


def test_the_children_of_a_killed_program_are_killed(tmp_path: Path) -> None:
    """Otherwise a grandchild keeps the output open, and its reader waits."""
    code = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    before = time.monotonic()
    answer = query_program([sys.executable, "-c", code], os.environ, 0.5)
    assert answer.error == "no answer within 0.5 s"
    assert time.monotonic() - before < 300  # it would take 600


def test_the_whole_machine_is_examined(tmp_path: Path) -> None:
    executable = make_python(tmp_path / "env", ROCM_TORCH)
    root = make_root(tmp_path / "root", (Gpu(90010, "AMD Instinct MI210"),), rocm="6.4.3")
    environ = {"PATH": os.environ["PATH"], "HSA_OVERRIDE_GFX_VERSION": "9.0.10", "SECRET": "of no concern"}
    machine = detect_machine(Interpreter([executable], environ, SECONDS), PROBE_TEXT, FACTS.rocm_triton_packages, root)
    assert machine.torch
    assert (machine.python.executable, machine.torch.hip) == (executable, "6.4.43482-0f2d60242")
    assert (machine.rocm, machine.rocm_path) == ("6.4.3", str(root / "opt/rocm"))
    assert (machine.gpus, machine.gpu_names) == (("gfx90a",), ("AMD Instinct MI210",))
    assert [device.path for device in machine.devices] == ["/dev/kfd", "/dev/dri/renderD128"]
    assert machine.environ == {"HSA_OVERRIDE_GFX_VERSION": "9.0.10"}
    assert (machine.flash_attn, machine.container) == (None, None)


def test_rocm_installed_from_wheels_has_their_version(tmp_path: Path) -> None:
    executable = make_python(tmp_path / "env")
    (site,) = tmp_path.glob("env/lib/python3*/site-packages")
    packages = {"rocm-sdk-core": "7.14.0", "triton-of-next-year": "4.0.0"}
    for name, version in {**packages, "pip": "25.0"}.items():
        write_metadata(site, name, version)
    interpreter = Interpreter([executable], {}, SECONDS)
    machine = detect_machine(interpreter, PROBE_TEXT, ["triton-of-next-year"], tmp_path / "empty")
    assert (machine.rocm, machine.rocm_path, machine.python.pip) == ("7.14.0", None, "25.0")
    assert machine.packages == packages, "a new name for Triton needs only an edit of matrix.yaml"
