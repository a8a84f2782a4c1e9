"""What the doctor knows of a machine, as values; `detect` makes them, `fit` and `diagnose` judge by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Python:
    """The Python that flash-attn is for; not always the one that the doctor runs in."""

    executable: str
    version: str
    """``3.11.7``."""
    tag: str
    """The python tag of the wheels it takes: ``cp311``, ``cp313t`` if free-threaded, ``pp311`` for PyPy."""
    system: str = "Linux"
    machine: str = "x86_64"
    glibc: str | None = None
    """``2.36``; None where it is not glibc, as on Alpine."""
    pip: str | None = None
    """Its version; None in an environment that uv made."""
    externally_managed: bool = False
    """Whether its distribution owns it (PEP 668), so that pip refuses to install into it."""


@dataclass(frozen=True)
class InstalledTorch:
    """The torch of that Python."""

    version: str
    """As its metadata says: ``2.9.1+rocm6.4``, ``2.5.0a0+git1234567``."""
    hip: str | None = None
    """``torch.version.hip``, such as ``6.4.43482-0f2d60242``; None for a torch that is not built for ROCm."""
    cuda: str | None = None
    cxx11_abi: bool | None = None
    sees_gpu: bool | None = None
    """``torch.cuda.is_available()``; None if it was not asked or the question failed."""
    archs: tuple[str, ...] = ()
    """``gcnArchName`` of each GPU that torch sees, without features."""
    error: str = ""
    """The last line of what importing it printed, if that failed; the fields above but `version` are empty then."""


@dataclass(frozen=True)
class InstalledFlashAttn:
    """The flash-attn of that Python."""

    version: str
    """With its local version: ``2.8.3+rocm64torch2.9``."""
    location: str
    """The folder that holds ``flash_attn``."""
    requires: tuple[str, ...] = ()
    """Its ``Requires-Dist`` lines."""
    build_record: Mapping[str, object] = field(default_factory=dict)
    """The build record in its dist-info; empty for a wheel of another factory."""
    extension: str | None = None
    """The compiled ``flash_attn_2_cuda`` beside it; None in a Triton wheel."""
    extension_archs: tuple[str, ...] = ()
    """Offload archs that the extension names; empty if it holds no device code, or packs it so that none is seen."""
    error: str = ""
    """What importing it printed last, if that failed."""
    has_triton_backend: bool = False
    """Whether it holds upstream's Triton backend, as every wheel from 2.7.4 to 2.8.3 does, compiled ones too."""
    stray_modules: tuple[str, ...] = ()
    """Compiled ``flash_attn_2_cuda`` files on Python's path that this flash-attn did not bring."""
    other_installs: tuple[str, ...] = ()
    """Further flash-attn on Python's path, as ``2.7.4.post1 in FOLDER``; Python takes the first."""
    missing_requirements: tuple[str, ...] = ()
    """What it requires that this Python does not have, by name."""
    shadowing_dir: str = ""
    """The folder the doctor was started in, if that has a ``flash_attn`` which Python would take when started there."""


@dataclass(frozen=True)
class Device:
    """A device file that ROCm opens."""

    path: str
    exists: bool
    usable: bool
    """Whether this user may read and write it."""
    group: str = ""
    """The group that it belongs to; a number where the group has no name, as in a container."""


@dataclass(frozen=True)
class Machine:
    """All that was found out. What could not be is None or empty, never guessed."""

    python: Python
    torch: InstalledTorch | None = None
    flash_attn: InstalledFlashAttn | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of what else matters: ``triton``, ``pytorch-triton-rocm``, ``triton-rocm``, ``einops`` ..."""
    rocm: str | None = None
    """``6.4.3``, of the machine; torch brings a ROCm of its own."""
    rocm_path: str | None = None
    gpus: tuple[str, ...] = ()
    """The offload arch of each GPU, in the driver's order."""
    gpu_names: tuple[str, ...] = ()
    """The product name of each, where the driver tells it; else an empty text."""
    devices: tuple[Device, ...] = ()
    """``/dev/kfd`` and the render nodes."""
    container: str | None = None
    """``docker``, ``podman``, ``kubernetes``, ...; None outside of any."""
    user: str = ""
    groups: tuple[str, ...] = ()
    """The groups of the user, by name."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The variables that change what ROCm, torch or flash-attn do, as far as they are set."""
