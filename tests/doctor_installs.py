"""Good and broken installs for the doctor: unpacked wheels, and compiled modules that really fail to load.

The package is minimal and chooses its backend like upstream's; test_doctor_diagnose_real.py uses the real one. torch is
an importable stub.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from doctor.known import FACTS, PROBE_TEXT
from elf_factory import hip_bundle, library, section
from wheel_factory import CK, TRITON, build_record, make_wheel, metadata_text, toolchain_of
from wheelfactory.core.query import Interpreter
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.installed_flash_attn import read_flash_attn
from wheelfactory.doctor.machine import Device, Diagnosis, InstalledFlashAttn, InstalledTorch, Machine, Python
from wheelfactory.wheel.corrections import ACTIVATION_MODULE, added_members
from wheelfactory.wheel.read import BUILD_RECORD_NAME

VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"

INTERFACE = b"""
import os
import torch
if os.getenv("FLASH_ATTENTION_TRITON_AMD_ENABLE", "FALSE") == "TRUE":
    from .flash_attn_triton_amd import interface_fa as flash_attn_gpu
else:
    import flash_attn_2_cuda as flash_attn_gpu
def flash_attn_func(): ...
"""
PACKAGE: Mapping[str, bytes] = {
    "flash_attn/__init__.py": b"from flash_attn.flash_attn_interface import flash_attn_func\n",
    "flash_attn/flash_attn_interface.py": INTERFACE,
    "flash_attn/flash_attn_triton_amd/__init__.py": b"",
    "flash_attn/flash_attn_triton_amd/interface_fa.py": b"""
import triton
from einops import rearrange
bwd = fwd = fwd_kvcache = varlen_bwd = varlen_fwd = None
""",
}
OLD_PACKAGE = {name: data for name, data in PACKAGE.items() if "triton" not in name}
"""Like flash-attn 2.6.3, which has no Triton backend."""

CK_VERSION = "2.8.3+rocm64torch2.9"
TRITON_VERSION = "2.8.3+rocm72torch2.13triton"
EINOPS = {"einops/__init__.py": b"rearrange = repeat = None\n", "einops-0.8.2.dist-info/METADATA": b"Name: einops\n"}
TRITON_MODULE = {"triton/__init__.py": b""}
TORCH_MODULE = {"torch/__init__.py": b"", "torch-2.9.1+rocm6.4.dist-info/METADATA": b"Name: torch\nVersion: 2.9.1\n"}
"""Imports without providing anything."""

MODULE = "flash_attn_2_cuda" + str(sysconfig.get_config_var("EXT_SUFFIX"))
"""The file name of a compiled module for the Python that runs the tests."""

_BINDING = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_flash_attn_2_cuda(void) { return PyModule_Create(&definition); }
"""
_SETTINGS = (VARIABLE, "PYTHONPATH", "HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES")


def good_module(*archs: str) -> bytes:
    """Return a compiled module that imports, with a code object for each arch."""
    fatbin = section(hip_bundle(*archs), hip_bundle(*archs)) if archs else b""
    return library(source=_BINDING, flags=("-I" + sysconfig.get_path("include"),), fatbin=fatbin)


def broken_module(
    *, needed: tuple[str, ...] = (), undefined: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> bytes:
    """Return a compiled module with missing libraries or symbols."""
    return library(defined=("PyInit_flash_attn_2_cuda",), needed=needed, undefined=undefined, flags=flags)


@cache
def module_calling(declaration: str, call: str, *, cxx11: bool) -> bytes:
    """Compile a C++ module that calls an undefined function, with the old or the new C++ ABI."""
    source = f'#include <string>\n{declaration}\nextern "C" void *PyInit_flash_attn_2_cuda() {{ {call}; return 0; }}'
    flags = ["-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11)}"]
    with tempfile.NamedTemporaryFile(suffix=".so") as made:
        subprocess.run(["c++", "-x", "c++", "-", *flags, "-o", made.name], input=source, text=True, check=True)
        return Path(made.name).read_bytes()


@dataclass(frozen=True)
class Site:
    """A directory of packages on a Python's path."""

    folder: Path
    python: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which that Python finds the directory."""
        kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
        return {**kept, "PYTHONPATH": str(self.folder), **self.settings}

    def add(self, members: Mapping[str, bytes]) -> Site:
        """Write files."""
        for name, data in members.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self

    def add_wheel(self, wheel: Path) -> Site:
        """Unpack a wheel, RECORD and all."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.folder)
        return self

    def add_flash_attn(
        self,
        version: str,
        members: Mapping[str, bytes],
        *,
        requires: tuple[str, ...] = ("einops",),
        record: bytes | None = None,
    ) -> Site:
        """Build a wheel of flash-attn and unpack it."""
        more = {} if record is None else {BUILD_RECORD_NAME: record}
        metadata = metadata_text(version, requires=requires)
        made = self.folder.parent / f"wheel-{version}"
        return self.add_wheel(
            make_wheel(made, version=version, metadata=metadata, members=members, dist_info_members=more)
        )

    def remove(self, package: str) -> Site:
        """Remove a package and its metadata."""
        for path in self.folder.glob(f"{package}*"):
            shutil.rmtree(path)
        return self

    def with_settings(self, **settings: str) -> Site:
        """Return the same site with environment variables."""
        return replace(self, settings={**self.settings, **settings})

    def read(self, seconds: float = 60) -> InstalledFlashAttn:
        """Return the flash-attn that the doctor finds here."""
        found = read_flash_attn(Interpreter([str(self.python)], self.environ, seconds), PROBE_TEXT)
        assert found
        return found


def ck_record(**changes: object) -> bytes:
    """The build record of a CK wheel for torch 2.9.1 and ROCm 6.4, with fields of its toolchain changed."""
    return build_record(CK, toolchain=toolchain_of(CK, **changes)).as_bytes()


CK_RECORD = ck_record()


def ck_site(
    site: Site,
    module: bytes,
    *,
    name: str = MODULE,
    version: str = CK_VERSION,
    record: bytes | None = CK_RECORD,
    requires: tuple[str, ...] = ("torch==2.9.*", "einops"),
) -> Site:
    """Install a CK wheel for torch 2.9 and ROCm 6.4 with this compiled module, beside torch and einops."""
    site.add({**TORCH_MODULE, **EINOPS})
    return site.add_flash_attn(version, {**PACKAGE, name: module}, requires=requires, record=record)


def triton_site(site: Site, *, ours: bool) -> Site:
    """Install a Triton wheel, ours or built elsewhere, beside torch, Triton and einops."""
    site.add({**TORCH_MODULE, **EINOPS, **TRITON_MODULE})
    added = {ACTIVATION_MODULE: added_members(TRITON)[ACTIVATION_MODULE]} if ours else {}
    return site.add_flash_attn(TRITON_VERSION, {**PACKAGE, **added})


KFD = Device("/dev/kfd", exists=True, usable=True, group="render")
RENDER_NODE = Device("/dev/dri/renderD128", exists=True, usable=True, group="render")
CK_TORCH = InstalledTorch("2.9.1+rocm6.4", hip="6.4.43482-0f2d60242", cxx11_abi=True, sees_gpu=True, archs=("gfx942",))
TRITON_TORCH = InstalledTorch("2.13.0+rocm7.2", hip="7.2.53211", cxx11_abi=True, sees_gpu=True, archs=("gfx942",))


def good_machine(site: Site | None = None, torch: InstalledTorch | None = CK_TORCH, /, **changes: object) -> Machine:
    """Return a healthy machine with an MI300X and the flash-attn of `site`."""
    healthy = Machine(
        this_python(site.python if site else Path(sys.executable)),
        torch=torch,
        flash_attn=site.read() if site else None,
        packages={"einops": "0.8.2"},
        rocm="6.4.3",
        rocm_path="/opt/rocm",
        gpus=("gfx942",),
        devices=(KFD, RENDER_NODE),
        user="ada",
        groups=("ada", "render"),
        environ=dict(site.settings) if site else {},
    )
    return replace(healthy, **changes)  # type: ignore[arg-type]  # values for any field


def only(machine: Machine) -> Diagnosis:
    """Return the only diagnosis of a machine."""
    (found,) = diagnose_machine(machine, FACTS)
    return found


def this_python(executable: Path) -> Python:
    """Return the Python that runs the tests, as the doctor describes it."""
    major, minor = sys.version_info[:2]
    glibc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    version, tag = platform.python_version(), f"cp{major}{minor}"
    return Python(str(executable), version, tag, glibc=glibc.rpartition(" ")[2] or None, pip="26.3")
