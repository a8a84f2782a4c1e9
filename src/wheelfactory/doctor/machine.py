"""The values that describe a machine and its problems: `detect` fills them in, `fit` and `diagnose` evaluate them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from wheelfactory.core.cell import major_minor
from wheelfactory.core.label import TorchOrigin, find_origin
from wheelfactory.core.published import Installer, pip_for, uv_for


def find_major_minor(version: str) -> tuple[int, int] | None:
    """Return (major, minor) of a version; None if it does not start with a digit."""
    return major_minor(version) if re.match(r"\d", version, re.ASCII) else None


def format_major_minor(version: tuple[int, int]) -> str:
    """Return ``2.9`` for (2, 9)."""
    return f"{version[0]}.{version[1]}"


@dataclass(frozen=True)
class Python:
    """The Python that flash-attn is installed into; the doctor may run in another one."""

    executable: str
    version: str
    """``3.11.7``."""
    tag: str
    """The python tag of its wheels: ``cp311``, ``cp313t`` if free-threaded, ``pp311`` for PyPy."""
    system: str = "Linux"
    machine: str = "x86_64"
    glibc: str | None = None
    """``2.36``; None with another C library, as on Alpine."""
    pip: str | None = None
    """The version of pip; None if missing, as in environments created by uv."""
    has_uv: bool = False
    """Whether uv is on PATH."""
    pip_extra: str = ""
    """The setting that gives pip a second index: ``PIP_EXTRA_INDEX_URL``, or a line of its configuration."""
    externally_managed: bool = False
    """Whether it belongs to the Linux distribution, so that pip refuses to install into it (PEP 668)."""


@dataclass(frozen=True)
class Requirement:
    """A requirement of a package."""

    name: str
    specifier: str
    """``==3.7.1``."""
    installed: str | None = None
    """The installed version; None if it is missing."""

    def __str__(self) -> str:
        have = f"{self.installed} is installed" if self.installed else "it is missing"
        return f"{self.name}{self.specifier}, and {have}"


@dataclass(frozen=True)
class InstalledTorch:
    """The torch installed in that Python."""

    version: str
    """From its metadata: ``2.9.1+rocm6.4``, ``2.5.0a0+git1234567``; empty if it has none."""
    hip: str | None = None
    """``torch.version.hip``, such as ``6.4.43482-0f2d60242``; None if not built for ROCm."""
    cuda: str | None = None
    cxx11_abi: bool | None = None
    sees_gpu: bool | None = None
    """``torch.cuda.is_available()``; None if the call failed or was not made."""
    archs: tuple[str, ...] = ()
    """The offload arch of each GPU that torch sees, without features."""
    error: str = ""
    """The last line of the import error. If set, only `version` is known."""
    rocm: str | None = None
    """``torch.version.rocm``, which older ones lack."""
    arch_list: tuple[str, ...] = ()
    """The archs that it has code for (``torch.cuda.get_arch_list()``); empty if unknown."""
    gpu_error: str = ""
    """How the process ended at the first use of the GPU: ``killed by SIGSEGV``; empty if it did not."""
    libraries: str = ""
    """The directory of its libraries."""
    exports: tuple[str, ...] = ()
    """Those symbols of CK wheels that its libraries define."""
    unmet: tuple[Requirement, ...] = ()
    """Its requirements that the Python does not meet."""

    def __str__(self) -> str:
        return f"torch {self.version or '(without metadata)'}"

    @property
    def minor(self) -> tuple[int, int] | None:
        """Its version as (major, minor); None if it has none."""
        return find_major_minor(self.version)

    @property
    def is_for_cuda(self) -> bool:
        """Whether it is a build for CUDA; if it does not import, its label or the library that it lacks says so."""
        lacks_cuda = re.search(r"lib(?:cud|cublas|nccl|nv)\w*\.so", self.error) and "+rocm" not in self.version
        return bool(self.cuda or lacks_cuda or (self.error and re.search(r"\+cu\d", self.version)))

    @property
    def origin(self) -> TorchOrigin:
        """Who built it."""
        return find_origin(self.version)


@dataclass(frozen=True)
class InstalledFlashAttn:
    """The flash-attn installed in that Python."""

    version: str
    """With its local version: ``2.8.3+rocm64torch2.9``."""
    location: str
    """The directory that contains ``flash_attn``."""
    requires: tuple[str, ...] = ()
    """Its ``Requires-Dist`` lines."""
    build_record: Mapping[str, object] = field(default_factory=dict)
    """The build record in its dist-info; empty for wheels built elsewhere."""
    extension: str | None = None
    """Path of its compiled ``flash_attn_2_cuda``; None in a Triton wheel."""
    extension_archs: tuple[str, ...] = ()
    """Offload archs that the extension has code for; empty if it has none or compresses it."""
    has_device_code: bool | None = None
    """Whether the extension has code for AMD GPUs; None if unknown."""
    error: str = ""
    """The import error in one line; empty if it imports."""
    has_triton_backend: bool = False
    """Whether it contains upstream's Triton backend. Every wheel from 2.7.4 to 2.8.3 does, compiled wheels too."""
    stray_modules: tuple[str, ...] = ()
    """Compiled ``flash_attn_2_cuda`` files on Python's path that do not belong to this install."""
    other_installs: tuple[str, ...] = ()
    """Other flash-attn installs on Python's path, as ``2.7.4.post1 in DIR``; Python imports the first."""
    missing_requirements: tuple[str, ...] = ()
    """Names of required packages that this Python lacks."""
    shadowing_dir: str = ""
    """The working directory, if it has its own ``flash_attn`` that Python would import there; else empty."""

    def __str__(self) -> str:
        return f"flash-attn {self.version}"


@dataclass(frozen=True)
class Device:
    """A device file that ROCm needs."""

    path: str
    exists: bool
    usable: bool
    """Whether this user has read and write permission."""
    group: str = ""
    """Its group: a name, or a number if the group has no name, as in a container."""


@dataclass(frozen=True)
class Machine:
    """One machine. Unknown values are None or empty, never guessed."""

    python: Python
    torch: InstalledTorch | None = None
    flash_attn: InstalledFlashAttn | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of related packages by name: ``triton``, ``pytorch-triton-rocm``, ``triton-rocm``, ``einops`` ..."""
    torch_pins: Mapping[str, str] = field(default_factory=dict)
    """By package that requires a torch of its own, such as vllm: that requirement."""
    foreign_flash_attn: str = ""
    """The directory of a module flash_attn that is no flash-attn, which Python would import; else empty."""
    foreign_owner: str = ""
    """The distribution that brought it, with its version; empty for a folder."""
    rocm: str | None = None
    """The machine's ROCm, ``6.4.3``; torch has its own libraries."""
    rocm_path: str | None = None
    gpus: tuple[str, ...] = ()
    """The offload arch of each GPU, in the driver's order."""
    gpu_names: tuple[str, ...] = ()
    """The product name of each GPU; an empty string if the driver has none."""
    devices: tuple[Device, ...] = ()
    """``/dev/kfd`` and the render nodes."""
    container: str | None = None
    """``docker``, ``podman``, ``kubernetes``, ...; None outside a container."""
    has_wsl_runtime: bool = False
    """Whether ROCm's runtime for WSL is installed."""
    user: str = ""
    groups: tuple[str, ...] = ()
    """The user's groups, by name."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that affect ROCm, torch or flash-attn, if set."""

    @property
    def torch_minor(self) -> tuple[int, int] | None:
        """The version of its torch as (major, minor); None if unknown, or without torch."""
        return self.torch.minor if self.torch else None


INSTALL_MATCHING_WHEEL = "install the matching wheel"
"""Part of a remedy; `report` replaces it by what the match with the site's wheels leads to."""

INSTALL_TORCH = "install a torch for ROCm"
"""Like `INSTALL_MATCHING_WHEEL`."""


@dataclass(frozen=True)
class Diagnosis:
    """One problem of a machine or its flash-attn install."""

    name: str
    """The kind of problem, as docs/how-to/mend-an-install.md or fix-a-gpu.md lists it."""
    what: str
    """What the doctor found, and why it does not work."""
    remedy: str = INSTALL_MATCHING_WHEEL
    """The command that fixes it, or what to do if no single command does."""


def choose_installer(machine: Machine) -> Installer:
    """Return pip for the machine's Python, or uv if that Python has no pip."""
    python = machine.python
    return uv_for(python.executable) if python.pip is None else pip_for(python.executable)


def uninstall_command(machine: Machine, *names: str) -> str:
    """Return the shell command that removes packages from the machine's Python."""
    return shlex.join([*choose_installer(machine).uninstall_command, *names])


def debug_command(machine: Machine, *code: str) -> str:
    """Return the shell command that runs lines of Python in the machine's Python, and shows where a crash happens."""
    return shlex.join([machine.python.executable, "-X", "faulthandler", "-c", "; ".join(code)])


def abi_age(*, new: bool | None) -> str:
    """Return ``new`` or ``old``, for a message about a C++ ABI."""
    return "new" if new else "old"
