"""A torch for ROCm on paper, of several releases and for any CPython, with which upstream's setup.py builds a wheel.

Real, out of that release's wheel for macOS, which is the smallest there is: torch.utils.cpp_extension, hipify, and what
these import. Written here: the little else that setup.py and the factory's probe ask of torch, and libraries without a
symbol to link. torch's wheels for ROCm are gigabytes, and no index has CPU builds of every release for every Python.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pythons import find_python
from wheelfactory.build.environments import (
    Environment,
    build_requirements,
    keep_environment,
    make_layered_environment,
    pip_install,
)
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.process import capture

RELEASES = {
    "2.8.0": "2efc2a97e2499092dd2f654ce5ab90ac9eab712e4fe715c47a4ae7685c9bb6c7",
    "2.9.1": "4d0d8bdfe37007e93200bf5e5298c00e4b3c97693a2baa69393e826b38a974a0",
    "2.11.0": "3c337a8d9dba2f8f11590c7bb5f6f4a0b227bcd224ad5b149ad90dfa9c2c5ae9",
    "2.12.1": "15564098b8b9d677e9a381127cd9e7ac7bea9e32c7c7daa1bf5f72754d3a7041",
}
"""The releases it can be, each with the sha256 of what is taken out of its wheel (see `REAL`)."""

REAL = (
    *("torch/_appdirs.py", "torch/torch_version.py", "torch/_vendor/packaging/", "torch/utils/hipify/"),
    *("torch/utils/cpp_extension.py", "torch/utils/_cpp_extension_versioner.py", "torch/utils/file_baton.py"),
)
"""What is taken out of a wheel: files, and folders with all in them."""

WRITTEN = {
    "__init__.py": "from torch import _C, backends, cuda, version, xpu\nfrom torch.torch_version import __version__\n",
    "version.py": "__version__ = '{torch}+rocm{rocm}'\nhip = '{hip}'\ncuda = xpu = None\n",
    # cpp_extension of torch 2.8 and older tells the compiler of pybind11's ABI, as torch itself was compiled for
    "_C.py": "_GLIBCXX_USE_CXX11_ABI = True\n"
    "_PYBIND11_COMPILER_TYPE, _PYBIND11_STDLIB, _PYBIND11_BUILD_ABI = '_gcc', '_libstdcpp', '_cxxabi1016'\n",
    "cuda.py": "def _is_compiled():\n    return True\n\n\ndef is_available():\n    return False\n",
    "xpu.py": "def _is_compiled():\n    return False\n",
    "backends/__init__.py": "from torch.backends import mps\n",
    "backends/mps.py": "def is_built():\n    return False\n",
    "utils/__init__.py": "",
}
"""Modules of torch, with what differs from one to the other in braces. ROCm's torch calls HIP's things cuda."""

LIBRARIES = ("c10", "torch", "torch_cpu", "torch_python", "c10_hip", "torch_hip")
"""What cpp_extension links an extension for ROCm with, beside HIP itself."""

TORCH_REQUIREMENTS = ("typing-extensions==4.16.0",)
"""What torch brings that cpp_extension imports."""


def make_stub_torch(cache: Path, folder: Path, torch: str, python: Path, rocm: Path) -> Path:
    """The interpreter of a new environment of `python` in `folder`, with a torch built for the HIP of `rocm` on paper.

    What is downloaded for it is kept in `cache`.
    """
    version = capture([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    made = make_layered_environment(folder, python, version, [_tools(cache, python, version)])
    shutil.copytree(real_modules(cache, torch), made.site_packages, dirs_exist_ok=True)
    _write_modules(made.site_packages / "torch", torch, _hip_of(rocm))
    _write_libraries(made.site_packages / "torch/lib")
    return made.python


def find_other_python() -> Path | None:
    """A CPython of another minor version than the one that runs this, if the machine has one that can be used."""
    others = (find_python(minor) for minor in (12, 13, 11, 10) if minor != sys.version_info[1])
    return next(filter(None, (_usable(python) for python in others if python)), None)


def _usable(python: Path) -> Path | None:
    """The interpreter behind a name; None if it is no CPython, or cannot make environments."""
    code = "import sys, venv; print(sys.executable if sys.implementation.name == 'cpython' else '')"
    try:
        executable = capture([python, "-c", code]).strip()
    except BuildError:
        return None
    return Path(executable) if executable else None


def _tools(cache: Path, python: Path, version: str) -> Path:
    """Where the build requirements beside torch are, for this Python."""
    requirements = [*(line for line in build_requirements() if not line.startswith("torch==")), *TORCH_REQUIREMENTS]
    name = hashlib.sha256("\n".join([version, *requirements]).encode()).hexdigest()[:16]
    kept = Environment(cache / f"env-{name}", version)
    if not kept.folder.is_dir():
        with scratch_dir(cache) as scratch:
            made = make_layered_environment(scratch / "env", python, version, [])
            pip_install(made, *requirements)
            keep_environment(made, kept.folder)
    return kept.site_packages


def real_modules(cache: Path, torch: str) -> Path:
    """The folder with what a release of torch has of `REAL`. Raises `ValueError` if it is not what is pinned."""
    expected, kept = RELEASES[torch], cache / f"stub-torch-{torch}"
    if not kept.is_dir():
        with scratch_dir(cache) as scratch:
            _take_out(_download(torch, scratch), scratch / "modules")
            keep_environment(Environment(scratch / "modules"), kept)
    found = _digest(kept)
    if found != expected:
        raise ValueError(f"{kept}: expected sha256 {expected}, found {found}")
    return kept


def _download(torch: str, folder: Path) -> Path:
    """The wheel for macOS; the Python it is for makes no difference to `REAL`."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    wanted = ["--platform", "macosx_14_0_arm64", "--python-version", "3.12", "--only-binary", ":all:", "--no-deps"]
    capture([*pip, *wanted, "--dest", folder, f"torch=={torch}"])
    return next(folder.glob("torch-*.whl"))


def _take_out(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(REAL)])


def _digest(folder: Path) -> str:
    """Over names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _hip_of(rocm: Path) -> str:
    """The version of HIP, such as ``7.2.53211-0000000``, which a torch built there would give as its own."""
    lines = capture([rocm / "bin/hipcc", "--version"]).splitlines()
    return next(line for line in lines if line.startswith("HIP version: ")).removeprefix("HIP version: ")


def _write_modules(package: Path, torch: str, hip: str) -> None:
    for name, text in WRITTEN.items():
        path = package / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(torch=torch, hip=hip, rocm=".".join(hip.split(".")[:2])))


def _write_libraries(folder: Path) -> None:
    folder.mkdir()
    for name in LIBRARIES:
        file = f"lib{name}.so"
        subprocess.run(
            ["cc", "-shared", "-x", "c", "-", f"-Wl,-soname,{file}", "-o", folder / file],
            stdin=subprocess.DEVNULL,
            check=True,
        )
