"""Fake machines, as directories that look like the driver's, and Pythons with a stub of torch.

The stubs are importable packages of a few lines with metadata. They provide only what the doctor queries.
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
    """A GPU in the driver's list."""

    version: int
    """Its ``gfx_target_version``."""
    name: str = ""
    """Its ``product_name``; most Radeons have none."""


MACHINES: Mapping[str, tuple[Gpu, ...]] = {
    "8 x MI300X": (Gpu(90402, "AMD Instinct MI300X OAM"),) * 8,
    "MI210": (Gpu(90010, "AMD Instinct MI210"),),
    "RX 7900 XTX": (Gpu(110000),),
    "RX 6800": (Gpu(100300, "Radeon RX 6800"),),
    "iGPU and RX 7900 XTX": (Gpu(100306), Gpu(110000)),
    "no GPU": (),
}


def make_root(folder: Path, gpus: tuple[Gpu, ...] = (), rocm: str = "") -> Path:
    """Create the file system of a machine with one CPU, these GPUs and, if given, this ROCm; return its root."""
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
    """Write a file and create its directories; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class FakeTorch(NamedTuple):
    """A torch stub: its version and the code of its module."""

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
    """Return a working stub; `archs` are the ``gcnArchName`` of its GPUs."""
    filled = _MODULE.format(version=version, hip=hip, cuda=cuda, cxx11_abi=cxx11_abi, archs=list(archs))
    return FakeTorch(version, filled)


ROCM_TORCH = fake_torch("2.9.1+rocm6.4", hip="6.4.43482-0f2d60242")
SEEING_TORCH = fake_torch("2.9.1+rocm6.4", hip="6.4.43482-0f2d60242", archs=("gfx942",))
"""The same on a machine with an Instinct."""
MISSING_LIBRARY = "libamdhip64.so.6: cannot open shared object file: No such file or directory"

TORCHES: Mapping[str, FakeTorch] = {
    "rocm": ROCM_TORCH,
    "cuda": fake_torch("2.9.1+cu128", cuda="12.8"),
    "cpu": fake_torch("2.9.1+cpu"),
    "broken": FakeTorch("2.9.1+rocm6.4", f"raise ImportError({MISSING_LIBRARY!r})"),
    "crashing": FakeTorch("2.9.1+rocm6.4", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"),
    "hanging": FakeTorch("2.9.1+rocm6.4", "import time\ntime.sleep(600)"),
}


def make_python(folder: Path, torch: FakeTorch | None = None, python: str = sys.executable) -> str:
    """Create an environment without pip, with that torch; return its interpreter."""
    if python == sys.executable:  # written directly, because the module venv takes a second
        _write_environment(folder)
    else:
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    if torch:
        write(site / "torch/__init__.py", torch.code)
        write_metadata(site, "torch", torch.version)
    return str(folder / "bin/python")


def _write_environment(folder: Path) -> None:
    base = Path(sys.executable).resolve()
    write(folder / "pyvenv.cfg", f"home = {base.parent}\ninclude-system-site-packages = false\n")
    (folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages").mkdir(parents=True)
    (folder / "bin").mkdir(parents=True)
    for name in ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"):
        (folder / "bin" / name).symlink_to(base)


def write_metadata(site: Path, name: str, version: str) -> None:
    """Write the metadata that importlib.metadata needs to find a package."""
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    write(site / f"{name.replace('-', '_')}-{version}.dist-info/METADATA", text)
