"""Check whether torch can use the machine's GPUs, and whether flash-attn has code for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wheelfactory.core.gpus import find_override_arch
from wheelfactory.doctor.gpu_match import (
    OVERRIDE,
    foreign_override,
    format_gpu,
    lacks_code,
    list_visible_gpus,
    may_have_code,
    visible_archs,
)
from wheelfactory.doctor.installed_flash_attn import has_cuda_label, has_label, is_compiled, list_compiled_archs
from wheelfactory.doctor.machine import Device, Diagnosis, InstalledFlashAttn, Machine
from wheelfactory.doctor.triton_checks import uses_triton

# each limits programs to the GPUs that it lists (ROCm documentation, "GPU isolation techniques")
_HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
# these use HIP's numbering; HIP reads the second one for compatibility with CUDA
_HIP_NUMBERS = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def check_gpu_code(machine: Machine, installed: InstalledFlashAttn) -> Iterator[Diagnosis]:
    """Yield the GPUs that a compiled flash-attn has no code object for; Triton compiles for any GPU."""
    archs = list_compiled_archs(installed)
    # a build without a label may have its kernels in a library of its own
    is_prebuilt = has_label(installed) and not has_cuda_label(installed) and not installed.error
    if is_prebuilt and installed.has_device_code is False and not archs and not uses_triton(machine, installed):
        what = f"{installed} imports, but its extension has no code objects for AMD GPUs"
        yield Diagnosis("no AMD code", what)
    # ROCm decides which GPUs can run code for a family or SPIR-V
    is_open = any(arch.endswith("generic") or arch == "amdgcnspirv" for arch in archs)
    gpus = [arch for arch, _ in list_visible_gpus(machine)]
    lacking = [number for number, arch in enumerate(gpus) if arch not in archs]
    if not lacking or not archs or is_open or not is_compiled(installed) or uses_triton(machine, installed):
        return
    names = ", ".join(dict.fromkeys(format_gpu(gpus[number]) for number in lacking))
    what = f"{installed} has code for {', '.join(archs)}, but not for {names}"
    override = machine.environ.get(OVERRIDE)
    overridden = override is not None and any(gpus[number] not in machine.gpus for number in lacking)
    if overridden:
        what = f"{what}; {OVERRIDE}={override} makes {', '.join(dict.fromkeys(machine.gpus))} report that arch"
    if len(lacking) < len(gpus):
        yield _one_of_several(machine, what, len(gpus), lacking)
    elif overridden and all(arch in archs for arch in machine.gpus):
        yield Diagnosis("no code for this GPU", what, f"unset {OVERRIDE}")
    else:
        yield Diagnosis("no code for this GPU", what)


def _one_of_several(machine: Machine, what: str, count: int, lacking: Sequence[int]) -> Diagnosis:
    """Report how to hide the GPUs at the positions `lacking`."""
    # the numbers in a visibility variable that is set already count, because the new value replaces it
    places = next((machine.environ[name].split(",") for name in _HIP_NUMBERS if name in machine.environ), [])
    names = places if len(places) == count else [str(number) for number in range(count)]
    what = f"{what} (GPU {', '.join(names[number] for number in lacking)}; {count} visible, counted from 0)"
    usable = ",".join(names[number] for number in range(count) if number not in lacking)
    return Diagnosis("no code for one of the GPUs", what, f"export HIP_VISIBLE_DEVICES={usable}")


def check_override(machine: Machine) -> Iterator[Diagnosis]:
    """Yield an override that makes the GPUs use code of another generation."""
    value = machine.environ.get(OVERRIDE)
    if value and find_override_arch(value) is None:
        what = f"{OVERRIDE} is {value!r}, and not three numbers such as 10.3.0"
        yield Diagnosis("no code for this GPU", what, f"unset {OVERRIDE}")
    if target := foreign_override(machine):
        own = ", ".join(map(format_gpu, dict.fromkeys(machine.gpus)))
        override = f"{OVERRIDE}={machine.environ[OVERRIDE]}"
        same = any(arch[:-2] == target[:-2] for arch in machine.gpus)
        why = "torch does not have" if same else "is of another generation"
        what = f"{override} makes {own} use code for {target}, which {why}"
        yield Diagnosis("no code for this GPU", what, f"unset {OVERRIDE}")


def check_gpu_access(machine: Machine) -> Iterator[Diagnosis]:
    """Yield what keeps torch from using the GPUs; nothing if it sees one, or has no code for them."""
    torch, hidden = machine.torch, set(machine.gpus) - set(visible_archs(machine))
    if torch and lacks_code(machine) and _hiding(machine) and any(may_have_code(torch, arch) for arch in hidden):
        yield _not_seen(machine)
    if (torch and torch.sees_gpu) or (lacks_code(machine) and not _hiding(machine)):
        return
    closed = [device for device in machine.devices if device.exists and not device.usable]
    has_render = any("renderD" in device.path for device in machine.devices if device.exists)
    kfd = next((device for device in machine.devices if device.path == "/dev/kfd"), None)
    if kfd and not kfd.exists:
        yield from _no_driver(machine)
    elif closed:
        yield _not_allowed(machine, closed)
    elif kfd and machine.container not in (None, "wsl") and not has_render:
        what = f"/dev/kfd is there, but /dev/dri has no GPU in this container ({machine.container})"
        yield Diagnosis("no GPU in the container", what, _start(machine.container, "/dev/kfd", "/dev/dri"))
    elif kfd and not machine.gpus:
        what = "/dev/kfd can be opened, but the driver lists no GPU"
        remedy = "run rocminfo, or sudo dmesg | grep amdgpu (on the host if this is a container)"
        yield Diagnosis("no GPU", what, remedy)
    elif machine.gpus and torch and torch.hip and torch.sees_gpu is False and not foreign_override(machine):
        yield _not_seen(machine)


def _no_driver(machine: Machine) -> Iterator[Diagnosis]:
    """Yield a missing ``/dev/kfd``, the compute device of the amdgpu driver; in WSL, the runtime is needed instead."""
    what, container = "/dev/kfd does not exist", machine.container
    dxg = next((device for device in machine.devices if device.path == "/dev/dxg"), None)
    if container is None:
        what = f"{what}: the amdgpu driver is not loaded, or it supports no GPU of this machine"
        yield Diagnosis("no GPU driver", what, "sudo modprobe amdgpu && sudo dmesg | grep -E 'amdgpu|kfd'")
    elif container != "wsl":
        what = f"{what} in this container ({container})"
        yield Diagnosis("no GPU in the container", what, _start("wsl" if dxg else container, "/dev/kfd", "/dev/dri"))
    elif not machine.has_wsl_runtime:
        what = "WSL provides the GPU as /dev/dxg, which needs the ROCm runtime for WSL, and it is not installed"
        if dxg is None or not dxg.exists:
            what = "/dev/dxg, the GPU in WSL, does not exist: this is WSL 1, or the driver in Windows is too old"
        yield Diagnosis("no GPU in WSL", what, 'follow AMD\'s "Install Radeon software for WSL", then run rocminfo')
    elif machine.torch and machine.torch.hip:
        what = f"the ROCm runtime for WSL is installed, but {machine.torch} sees no GPU"
        remedy = "run rocminfo; if it lists the GPU, this torch is not AMD's for WSL, which has the runtime in it"
        yield Diagnosis("no GPU in WSL", what, remedy)


_KEEP_GROUPS = "start the container with `podman run --group-add keep-groups --security-opt label=disable ...`"

# how to give a sandbox the GPU, by its kind; the others are started by docker or podman
_WAYS = {
    "kubernetes": "request a GPU in the pod's resources.limits (amd.com/gpu: 1); this needs AMD's device plugin",
    "apptainer": "start the container with `apptainer exec --rocm ...`",
    "lxc": "on the host, give the LXC container the devices: on Proxmox `pct set ID --dev0 /dev/kfd,gid=GID --dev1 "
    "/dev/dri/renderD128,gid=GID` (GID of its group render), else lxc.cgroup2.devices.allow and lxc.mount.entry",
    "flatpak": "run Python outside of the Flatpak sandbox, or start the program with `flatpak run --device=all APP`",
    "snap": "run Python outside of the Snap sandbox, which does not pass /dev/kfd",
    "systemd-nspawn": "start the container with `systemd-nspawn --bind=/dev/kfd --bind=/dev/dri "
    "--property=DeviceAllow='/dev/kfd rw' --property=DeviceAllow='char-drm rw' ...`",
    "wsl": "add `--device=/dev/dxg --volume /usr/lib/wsl/lib/libdxcore.so:/usr/lib/libdxcore.so` to `docker run`",
    "toolbox": "create the toolbox on a host whose /dev/kfd opens for every user; it passes all devices of the host",
}


def _start(container: str, *devices: str) -> str:
    """Return how to start a container with GPU access."""
    engine = "podman" if container == "podman" else "docker"
    given = " ".join(f"--device={device}" for device in devices)
    return _WAYS.get(container, f"start the container with `{engine} run {given} ...`")


def _not_allowed(machine: Machine, closed: Sequence[Device]) -> Diagnosis:
    paths = [device.path for device in closed]
    groups = list(dict.fromkeys(device.group for device in closed if device.group))
    lacking = [group for group in groups if group not in machine.groups]
    user, container = machine.user or "this user", None if machine.container == "wsl" else machine.container
    what = f"{user} has no permission to open {', '.join(paths)}"
    if container == "kubernetes":
        what = f"{what} of this pod (group {' and '.join(groups)}): it got the device, not the right to open it"
        remedy = "set the pod's securityContext.supplementalGroups to the group of the node's device"
        return _no_permission(what, f"{remedy} (or its device plugin)")
    if container and set(groups) & {"nogroup", "nobody", "65534"}:
        if container in ("podman", "toolbox", "lxc"):
            remedy = _KEEP_GROUPS if container == "podman" else _start(container)
            return _no_permission(f"{what}: unprivileged {container} drops the groups of the host", remedy)
        what = f"{what}: they belong to nobody here, as under Docker Desktop, whose containers run in a virtual machine"
        remedy = "use Docker Engine, without Docker Desktop (`docker context use default`), and not its rootless mode"
        return _no_permission(what, remedy)
    if lacking and user not in ("root", "0"):
        what = f"{what}; this needs the group{'s' * (len(lacking) > 1)} {' and '.join(lacking)}"
        return Diagnosis("missing group", what, _join_groups(user, container, lacking))
    if container:
        what = f"{what}: this container ({container}) was started without access to it"
        return _no_permission(what, _start(container, *paths))
    return _no_permission(f"{what} (group {' and '.join(groups)})" if groups else what, f"ls -l {' '.join(paths)}")


def _no_permission(what: str, remedy: str) -> Diagnosis:
    return Diagnosis("no permission for the GPU", what, remedy)


def _join_groups(user: str, container: str | None, lacking: Sequence[str]) -> str:
    if container is None or container in _WAYS:  # these have the groups of the host, or their own
        return f"sudo usermod --append --groups {','.join(lacking)} {user}, then log out and in again"
    if container == "podman":
        return _KEEP_GROUPS
    remedy = f"start the container with {' '.join(f'--group-add {group}' for group in lacking)}"
    # a name resolves to the image's number, not the host's
    is_name = not all(group.isdigit() for group in lacking)
    return f"{remedy} (use the host's group number if it differs)" if is_name else remedy


def _hiding(machine: Machine) -> list[str]:
    return [name for name in _HIDING if name in machine.environ]


def _not_seen(machine: Machine) -> Diagnosis:
    listed = ", ".join(map(format_gpu, dict.fromkeys(machine.gpus)))
    seen = machine.torch.archs if machine.torch else ()
    what = f"the driver lists {listed}, but {machine.torch} sees {' and '.join(seen) or 'no GPU'}"
    if hiding := _hiding(machine):
        settings = ", ".join(f"{name} is {machine.environ[name]!r}" for name in hiding)
        return Diagnosis("GPU hidden", f"{what}: {settings}", f"unset {' '.join(hiding)}")
    more = f"AMD_LOG_LEVEL=3 {machine.python.executable} -c 'import torch; torch.cuda.init()'"
    return Diagnosis("torch sees no GPU", what, f"for details, run: {more}")
