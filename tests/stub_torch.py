"""A stub of torch for ROCm, of several releases and for any CPython, that is enough for upstream's setup.py.

torch.utils.cpp_extension, hipify and their imports are real, extracted from that release's wheel for macOS, the
smallest one. The other modules that setup.py and the factory's probe use are stubs, and the libraries have no symbols.
torch's wheels for ROCm have gigabytes, and no index has CPU builds of every release for every Python.
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
    "2.13.0": "9665f7be559a97a1c3321e4ab1ad0e7089ac6d8d804b936d8734ec0f99df0fcc",
    "2.14.1": "68bb6d0db093002e8a922c5661627e4a3ab47fe6c7e51c4fbdda1dfaef6e74b5",
}
"""The supported releases, each with the sha256 of its extracted modules (see `REAL`)."""

REAL = (
    *("torch/_appdirs.py", "torch/torch_version.py", "torch/_vendor/packaging/", "torch/utils/hipify/"),
    *("torch/utils/cpp_extension.py", "torch/utils/_cpp_extension_versioner.py", "torch/utils/file_baton.py"),
)
"""Extracted from a wheel: files, and folders with their contents."""

WRITTEN = {
    "__init__.py": "from torch import _C, backends, cuda, version, xpu\nfrom torch.torch_version import __version__\n",
    "version.py": "__version__ = '{torch}+rocm{rocm}'\nhip = '{hip}'\ncuda = xpu = None\n",
    # cpp_extension of torch 2.8 and older passes the pybind11 ABI of torch to the compiler
    "_C.py": "_GLIBCXX_USE_CXX11_ABI = True\n"
    "_PYBIND11_COMPILER_TYPE, _PYBIND11_STDLIB, _PYBIND11_BUILD_ABI = '_gcc', '_libstdcpp', '_cxxabi1016'\n",
    "cuda.py": "def _is_compiled():\n    return True\n\n\ndef is_available():\n    return False\n",
    "xpu.py": "def _is_compiled():\n    return False\n",
    "backends/__init__.py": "from torch.backends import mps\n",
    "backends/mps.py": "def is_built():\n    return False\n",
    "_utils_internal.py": "import os\n\n\ndef get_file_path(name):\n    return os.path.dirname(__file__)\n",
    "utils/__init__.py": "",
    "utils/_filelock.py": "FileLock = None  # only for extensions that are compiled when they are imported\n",
}
"""Stub modules, as format strings. torch for ROCm uses the name cuda for HIP."""

LIBRARIES = ("c10", "torch", "torch_cpu", "torch_python", "c10_hip", "torch_hip")
"""The libraries besides HIP that cpp_extension links an extension for ROCm with."""

TORCH_REQUIREMENTS = ("typing-extensions==4.16.0",)
"""Requirements of torch that cpp_extension imports."""


def make_stub_torch(cache: Path, folder: Path, torch: str, python: Path, rocm: Path) -> Path:
    """Create an environment of `python` in `folder` with the stub, for the HIP in `rocm`; return its interpreter.

    Downloads are kept in `cache`.
    """
    version = capture([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    made = make_layered_environment(folder, python, version, [_tools(cache, python, version)])
    shutil.copytree(real_modules(cache, torch), made.site_packages, dirs_exist_ok=True)
    _write_modules(made.site_packages / "torch", torch, _hip_of(rocm))
    _write_libraries(made.site_packages / "torch/lib")
    return made.python


def find_other_python() -> Path | None:
    """Find a usable CPython of another minor version than the running one; None if there is none."""
    others = (find_python(minor) for minor in (12, 13, 11, 10) if minor != sys.version_info[1])
    return next(filter(None, (_usable(python) for python in others if python)), None)


def _usable(python: Path) -> Path | None:
    """Return the real path of an interpreter; None if it is not CPython or has no venv."""
    code = "import sys, venv; print(sys.executable if sys.implementation.name == 'cpython' else '')"
    try:
        executable = capture([python, "-c", code]).strip()
    except BuildError:
        return None
    return Path(executable) if executable else None


def _tools(cache: Path, python: Path, version: str) -> Path:
    """Return the site-packages with the build requirements besides torch, for this Python."""
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
    """Return the folder with `REAL` of a release. Raises `ValueError` if its digest differs from the pin."""
    expected, kept = RELEASES[torch], cache / f"stub-torch-{torch}"
    if not kept.is_dir():
        with scratch_dir(cache) as scratch:
            _extract(_download(torch, scratch), scratch / "modules")
            keep_environment(Environment(scratch / "modules"), kept)
    found = _digest(kept)
    if found != expected:
        raise ValueError(f"{kept}: expected sha256 {expected}, found {found}")
    return kept


def _download(torch: str, folder: Path) -> Path:
    """Download the wheel for macOS. `REAL` is the same for every Python."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    wanted = ["--platform", "macosx_14_0_arm64", "--python-version", "3.12", "--only-binary", ":all:", "--no-deps"]
    capture([*pip, *wanted, "--dest", folder, f"torch=={torch}"])
    return next(folder.glob("torch-*.whl"))


def _extract(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(REAL)])


def _digest(folder: Path) -> str:
    """Return the sha256 over names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _hip_of(rocm: Path) -> str:
    """Return the version of HIP, such as ``7.2.53211-0000000``, as a torch built there reports it."""
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
