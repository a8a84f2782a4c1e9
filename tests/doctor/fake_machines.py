"""Machines as the driver shows them, in folders; Pythons with a torch that says of itself what a real one would.

The torches are importable packages with metadata, a few lines each: they stand in for gigabytes, and only what the
doctor asks of torch is in them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fake_gpus import make_nodes

NODES = "sys/class/kfd/kfd/topology/nodes"


class Gpu(NamedTuple):
    """A GPU as the driver shows it."""

    version: int
    """Its ``gfx_target_version``."""
    name: str = ""
    """What ``product_name`` says; most Radeons have none."""


MACHINES: Mapping[str, tuple[Gpu, ...]] = {
    "8 x MI300X": (Gpu(90402, "AMD Instinct MI300X OAM"),) * 8,
    "MI210": (Gpu(90010, "AMD Instinct MI210"),),
    "RX 7900 XTX": (Gpu(110000),),
    "RX 6800": (Gpu(100300, "Radeon RX 6800"),),
    "Strix Halo": (Gpu(110501),),
    "RX 9070": (Gpu(120001),),
    "iGPU and RX 7900 XTX": (Gpu(100306), Gpu(110000)),
    "no GPU": (),
}


def make_root(folder: Path, gpus: tuple[Gpu, ...] = (), rocm: str = "") -> Path:
    """The file system of a machine with one processor and these GPUs, and perhaps a ROCm."""
    nodes = make_nodes(folder / NODES, 0, *(gpu.version for gpu in gpus))
    for number, gpu in enumerate(gpus, 1):
        minor = 127 + number
        with (nodes / str(number) / "properties").open("a") as properties:
            properties.write(f"drm_render_minor {minor}\n")
        write(folder / f"dev/dri/renderD{minor}")
        if gpu.name:
            write(folder / f"sys/class/drm/renderD{minor}/device/product_name", f"{gpu.name}\n")
    if gpus:
        write(folder / "dev/kfd")
    if rocm:
        write(folder / "opt/rocm/.info/version", f"{rocm}-120\n")
    return folder


def write(path: Path, text: str = "") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class FakeTorch(NamedTuple):
    """A torch: its version as metadata and module have it, and what the module does."""

    version: str
    code: str


_MODULE = """
from types import SimpleNamespace
__version__ = {version!r}
version = SimpleNamespace(hip={hip!r}, cuda={cuda!r})
_C = SimpleNamespace(_GLIBCXX_USE_CXX11_ABI={cxx11_abi})
cuda = SimpleNamespace(
    is_available=lambda: {archs} != [],
    device_count=lambda: len({archs}),
    get_device_properties=lambda number: SimpleNamespace(gcnArchName={archs}[number]),
)
print("what torch prints when it is imported")
"""


def fake_torch(
    version: str,
    *,
    hip: str | None = None,
    cuda: str | None = None,
    cxx11_abi: bool = True,
    archs: tuple[str, ...] = (),
) -> FakeTorch:
    """A torch that works; `archs` are the ``gcnArchName`` of what it sees."""
    filled = _MODULE.format(version=version, hip=hip, cuda=cuda, cxx11_abi=cxx11_abi, archs=list(archs))
    return FakeTorch(version, filled)


ROCM_TORCH = fake_torch("2.9.1+rocm6.4", hip="6.4.43482-0f2d60242")
MISSING_LIBRARY = "libamdhip64.so.6: cannot open shared object file: No such file or directory"

TORCHES: Mapping[str, FakeTorch | None] = {
    "rocm": ROCM_TORCH,
    "container": fake_torch("2.5.0a0+git1234567", hip="6.2.41133-dd7f95766"),
    "cuda": fake_torch("2.9.1+cu128", cuda="12.8"),
    "cpu": fake_torch("2.9.1+cpu"),
    "none": None,
    "broken": FakeTorch("2.9.1+rocm6.4", f"raise ImportError({MISSING_LIBRARY!r})"),
    "crashing": FakeTorch("2.9.1+rocm6.4", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"),
    "hanging": FakeTorch("2.9.1+rocm6.4", "import time\ntime.sleep(600)"),
}


def make_python(folder: Path, torch: FakeTorch | None = None, python: str = sys.executable) -> str:
    """An environment without pip, with that torch; gives its interpreter."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    if torch:
        write(site / "torch/__init__.py", torch.code)
        write_metadata(site, "torch", torch.version)
    return str(folder / "bin/python")


def write_metadata(site: Path, name: str, version: str) -> None:
    """What makes importlib.metadata see a package."""
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    write(site / f"{name.replace('-', '_')}-{version}.dist-info/METADATA", text)
