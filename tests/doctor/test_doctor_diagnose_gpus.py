"""Diagnoses of torch, of GPUs without code in the wheel, and of inaccessible GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from doctor.known import FACTS
from doctor_installs import (
    CK_TORCH,
    KFD,
    RENDER_NODE,
    TRITON_TORCH,
    Site,
    ck_site,
    good_machine,
    good_module,
    only,
    triton_site,
)
from wheelfactory.doctor.detect import read_devices
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.machine import Device, InstalledTorch, Machine

INDEX = "https://download.pytorch.org/whl/rocm6.4"


# torch


def test_a_torch_that_does_not_import_is_the_only_diagnosis(site: Site) -> None:
    ck_site(site, good_module("gfx942"))
    (site.folder / "torch/__init__.py").write_text("raise OSError('libMIOpen.so.1: cannot open shared object file')")
    torch = InstalledTorch("2.9.1+rocm6.4", error="OSError: libMIOpen.so.1: cannot open shared object file")
    found = only(good_machine(site, torch))
    assert found.name == "torch does not import"
    assert "`OSError: libMIOpen.so.1: cannot open shared object file`" in found.what
    again = f"{site.python} -m pip install --force-reinstall torch==2.9.1+rocm6.4 --index-url {INDEX}"
    assert found.remedy == f"reinstall it: `{again}`"


def test_only_pytorchs_own_builds_are_reinstalled_from_its_index() -> None:
    for version in ("2.5.0a0+git1234567", "2.9.1+rocm7.1.1.lw.git351ff442", "2.9.1+rocm7.10.0", "2.9.1"):
        found = only(good_machine(None, InstalledTorch(version, error="killed by SIGILL")))
        assert found.remedy.endswith("-X faulthandler -c 'import torch'`")
    for rocm in ("6.2.4", "7.14"):
        found = only(good_machine(None, InstalledTorch(f"2.7.1+rocm{rocm}", error="killed by SIGILL")))
        assert found.remedy.endswith(
            f"torch==2.7.1+rocm{rocm} --index-url https://download.pytorch.org/whl/rocm{rocm}`"
        )


@pytest.mark.parametrize(
    ("torch", "name", "message"),
    [
        (("2.10.0+rocm6.4", "6.4"), "torch mismatch", "torch 2.9 (from its label), you have torch 2.10.0+rocm6.4"),
        (("2.9.1+rocm6.3", "6.3.42131"), "ROCm mismatch", "ROCm 6.4, but torch 2.9.1+rocm6.3 for ROCm 6.3"),
    ],
    ids=["torch", "ROCm"],
)
def test_a_compiled_wheel_that_imports_despite_a_mismatch(
    site: Site, torch: tuple[str, str], name: str, message: str
) -> None:
    made = ck_site(site, good_module("gfx942"), record=None)
    found = only(good_machine(made, replace(CK_TORCH, version=torch[0], hip=torch[1])))
    assert found.name == name
    assert f"was built for {message}" in found.what


def test_a_torch_outside_the_wheels_requirement(site: Site) -> None:
    made = ck_site(site, good_module("gfx942"), version="2.8.3", record=None, requires=("torch (==2.8.*)", "einops"))
    assert "was built for torch 2.8 (from its requirements), you have" in only(good_machine(made)).what


# Triton


def machine_with_tritons(site: Site, packages: Mapping[str, str], torch: InstalledTorch = TRITON_TORCH) -> Machine:
    return good_machine(triton_site(site, ours=True), torch, packages=packages)


@pytest.mark.parametrize(
    ("version", "kept", "removed"),
    [("2.9.1+rocm6.4", "pytorch-triton-rocm", "triton-rocm"), ("2.10.0+rocm7.1", "triton-rocm", "pytorch-triton-rocm")],
)
def test_the_triton_of_another_torch_is_removed(site: Site, version: str, kept: str, removed: str) -> None:
    packages = {"pytorch-triton-rocm": "3.5.1", "triton-rocm": "3.6.0"}
    machine = machine_with_tritons(site, packages, replace(CK_TORCH, version=version))
    (remedy,) = (found.remedy for found in diagnose_machine(machine, FACTS) if "Tritons" in found.name)
    assert f"pip uninstall --yes {removed} && " in remedy
    assert f" {kept}=={packages[kept]}" in remedy


def test_a_triton_missing_from_pytorchs_indexes_is_not_installed_from_there(site: Site) -> None:
    torch = replace(TRITON_TORCH, version="2.13.0a0+git1234567")
    found = only(machine_with_tritons(site, {"triton": "3.9.0", "triton-rocm": "3.7.1+cf34004b"}, torch))
    pip = f"{site.python} -m pip"
    wanted = "triton-rocm==3.7.1+cf34004b"
    assert found.remedy == (
        f"{pip} uninstall --yes triton; then keep torch, and install {wanted} from where this torch came: "
        f"add its index to `{pip} install --no-deps --force-reinstall {wanted}`"
    )


def test_a_triton_that_is_too_old_imports(site: Site) -> None:
    found = only(machine_with_tritons(site, {"triton": "3.1.0+rocm6.4.1"}))
    assert found.name == "unsupported Triton"
    assert "needs Triton >=3.2,<3.9, you have triton 3.1.0+rocm6.4.1" in found.what
    assert found.remedy.endswith("https://download.pytorch.org/whl/rocm7.2 triton-rocm==3.7.1")


def test_a_compiled_wheel_works_with_any_triton(site: Site) -> None:
    machine = good_machine(ck_site(site, good_module("gfx942")), packages={"triton": "3.9.0"})
    assert diagnose_machine(machine, FACTS) == ()


# code for the GPUs


@pytest.mark.parametrize(
    ("visible", "number", "remedy"),
    [(None, 0, "export HIP_VISIBLE_DEVICES=1"), ("2,5", 2, "export HIP_VISIBLE_DEVICES=5")],
)
def test_one_of_two_gpus_has_no_code(site: Site, visible: str | None, number: int, remedy: str) -> None:
    made = ck_site(site, good_module("gfx1100"), record=None)
    made = made.with_settings(**({"HIP_VISIBLE_DEVICES": visible} if visible else {}))
    torch = replace(CK_TORCH, archs=("gfx1036", "gfx1100"))
    found = only(good_machine(made, torch, gpus=("gfx1036", "gfx1100")))
    assert found.name == "no code for one of the GPUs"
    assert found.what.endswith(
        f"not for gfx1036 (Ryzen 7000 (Raphael) graphics) (GPU {number}; 2 visible, counted from 0)"
    )
    assert found.remedy == remedy


@pytest.mark.parametrize("archs", [("gfx1101",), ()], ids=["torch says so too", "the driver alone"])
def test_an_override_to_an_arch_without_code(site: Site, archs: tuple[str, ...]) -> None:
    made = ck_site(site, good_module("gfx1100"), record=None).with_settings(HSA_OVERRIDE_GFX_VERSION="11.0.1")
    found = only(good_machine(made, replace(CK_TORCH, archs=archs), gpus=("gfx1100",)))
    assert found.name == "no code for this GPU"
    assert found.what.endswith("; HSA_OVERRIDE_GFX_VERSION=11.0.1 makes gfx1100 report that arch")
    assert found.remedy == "unset HSA_OVERRIDE_GFX_VERSION"


def test_an_override_to_an_arch_with_code_and_code_for_an_arch_family_are_accepted(site: Site) -> None:
    made = ck_site(site, good_module("gfx90a", "gfx942", "gfx11-generic"), record=None)
    machine = good_machine(made, replace(CK_TORCH, archs=()))
    for override, gpu in (("11.0.0", "gfx1103"), ("9.0.10", "gfx90c"), ("9.4.2", "gfx941")):
        overridden = replace(machine, gpus=(gpu,), environ={"HSA_OVERRIDE_GFX_VERSION": override})
        assert diagnose_machine(overridden, FACTS) == ()
    assert diagnose_machine(replace(machine, torch=replace(CK_TORCH, archs=("gfx1103",))), FACTS) == ()


# access to the GPU


def machine_without_gpu_access(**changes: object) -> Machine:
    """Return a machine without flash-attn whose torch sees no GPU."""
    return good_machine(None, replace(CK_TORCH, sees_gpu=False, archs=()), **changes)


@pytest.mark.parametrize(
    ("container", "name", "message", "remedy"),
    [
        (None, "no GPU driver", "the amdgpu driver is not loaded", "sudo modprobe amdgpu"),
        ("podman", "no GPU in the container", "(podman)", "podman run --device=/dev/kfd --device=/dev/dri"),
        ("apptainer", "no GPU in the container", "(apptainer)", "--rocm"),
        ("kubernetes", "no GPU in the container", "(kubernetes)", "amd.com/gpu"),
        ("wsl", "no GPU in WSL", "/dev/dxg", "Install Radeon software for WSL"),
    ],
)
def test_no_dev_kfd(tmp_path: Path, container: str | None, name: str, message: str, remedy: str) -> None:
    found = only(machine_without_gpu_access(devices=read_devices(tmp_path), container=container, gpus=()))
    assert found.name == name
    assert message in found.what
    assert remedy in found.remedy


def closed(device: Device, group: str = "render") -> Device:
    return replace(device, usable=False, group=group)


PODMAN = "start the container with `podman run --group-add keep-groups --security-opt label=disable ...`"
ROOT = {"user": "root", "groups": ("root",), "container": "docker"}


@pytest.mark.parametrize(
    ("devices", "changes", "name", "what", "remedy"),
    [
        (
            (closed(KFD), closed(RENDER_NODE, "video")),
            {},
            "missing group",
            "ada has no permission to open /dev/kfd, /dev/dri/renderD128; this needs the groups render and video",
            "sudo usermod --append --groups render,video ada, then log out and in again",
        ),
        (
            (closed(KFD),),
            {"container": "podman"},
            *("missing group", "ada has no permission to open /dev/kfd; this needs the group render", PODMAN),
        ),
        (
            (closed(KFD, "ada"),),
            {},
            *("no permission for the GPU", "ada has no permission to open /dev/kfd (group ada)", "ls -l /dev/kfd"),
        ),
        (
            (closed(KFD),),
            ROOT,
            "no permission for the GPU",
            "root has no permission to open /dev/kfd: this container (docker) was started without access to it",
            "start the container with `docker run --device=/dev/kfd ...`",
        ),
    ],
    ids=["two groups", "rootless podman", "a member all the same", "root in a container"],
)
def test_a_device_without_permission(
    devices: tuple[Device, ...], changes: Mapping[str, object], name: str, what: str, remedy: str
) -> None:
    found = only(machine_without_gpu_access(devices=devices, **{"groups": ("ada",), **changes}))
    assert (found.name, found.what, found.remedy) == (name, what, remedy)


def test_a_gpu_that_torch_does_not_see_because_of_a_variable_or_for_an_unknown_reason() -> None:
    found = only(machine_without_gpu_access(environ={"ROCR_VISIBLE_DEVICES": ""}))
    assert (found.name, found.remedy) == ("GPU hidden", "unset ROCR_VISIBLE_DEVICES")
    assert found.what == (
        "the driver lists gfx942 (Instinct MI300A, MI300X, MI308X ...), "
        "but torch 2.9.1+rocm6.4 sees no GPU: ROCR_VISIBLE_DEVICES is ''"
    )
    unknown = only(machine_without_gpu_access())
    assert unknown.name == "torch sees no GPU"
    assert unknown.remedy.startswith("for details, run: AMD_LOG_LEVEL=3 ")


def test_an_inaccessible_node_is_no_problem_if_torch_sees_a_gpu() -> None:
    assert diagnose_machine(good_machine(None, devices=(KFD, closed(RENDER_NODE))), FACTS) == ()


def test_the_most_severe_problem_comes_first(site: Site) -> None:
    made = ck_site(site, good_module("gfx90a"), record=None)
    made.remove("einops")
    torch = InstalledTorch("2.9.1+cpu", cxx11_abi=True, sees_gpu=False)
    found = diagnose_machine(good_machine(made, torch, devices=(closed(KFD),), groups=("ada",)), FACTS)
    names = ["torch is not built for ROCm", "no code for this GPU", "missing group", "missing requirement"]
    assert [diagnosis.name for diagnosis in found] == names


def test_every_diagnosis_is_documented() -> None:
    root = Path(__file__).parents[2]
    sources = (path.read_text() for path in (root / "src/wheelfactory/doctor").glob("*.py"))
    names = {name for text in sources for name in re.findall(r'Diagnosis\(\s*"([^"]+)"', text)}
    pages = ("mend-an-install.md", "fix-triton.md", "fix-a-gpu.md")
    texts = ((root / "docs/how-to" / page).read_text() for page in pages)
    documented = re.findall(r"^- \*\*(.+?)\*\*", "".join(texts), re.MULTILINE)
    assert len(names) > 20
    assert sorted(names) == sorted(documented)
