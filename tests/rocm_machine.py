"""A machine with ROCm as far as it can be had: one that ends at the compiler; and several, each with its own cache."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elf_factory import code_object, hip_bundle, object_file
from shared_folder import file_lock
from wheelfactory.build.environments import Environment, make_build_environment, make_empty_environment
from wheelfactory.build.rocm_python import prepare_rocm_python
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.checkout import MATRIX
from wheelfactory.kernels.kernel_set import sources_name
from wheelfactory.matrix.load import load_matrix

STAND_IN = Path(__file__).parent / "rocm_stand_in"

LEAKS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PYTORCH_ROCM_ARCH", "ROCM_PATH", "ROCM_HOME", "MAX_JOBS", "GPU_ARCHS")
"""Variables of the person who runs the tests that would change what they test."""

NO_ENGINE = "unix:///nowhere/docker.sock"
"""A container engine that does not answer, so that what is tested is built on this machine."""

KERNEL_SET = f"{sources_name(load_matrix(MATRIX), '2.8.3')}-rocm7.2-gfx90a_gfx942_gfx950-cxx11"
"""The kernel set of the cells of flash-attn 2.8.3 that such a machine can build."""

SHARDS = 2

TOOLS = "build-tools"
"""The folder below ROCM_PATH with the build tools that the factory installs over this Python."""

STUB_TORCH = {
    "__init__.py": "from torch import _C, version\n\n__version__ = version.__version__\n",
    "_C.py": "_GLIBCXX_USE_CXX11_ABI = True\n",
    "version.py": "__version__ = '2.13.0+rocm7.2'\nhip = '7.2.53211-0000000'\ncuda = None\n",
    "utils/__init__.py": "",
    "utils/cpp_extension.py": "import os\n\nROCM_HOME = os.environ['ROCM_HOME']\n",
}

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Machine:
    """A cache, an environment, and what hipcc was asked there."""

    cache: Path
    environ: Mapping[str, str]

    def run(self, *arguments: str | Path, **settings: str) -> Done:
        """Run a command of the factory."""
        command = [sys.executable, "-m", "wheelfactory", *arguments, "--cache", self.cache]
        return subprocess.run(command, env={**self.environ, **settings}, capture_output=True, text=True)

    def compiled(self) -> list[str]:
        """The names of the sources that hipcc has compiled since this was asked last."""
        log = Path(self.environ["ROCM_PATH"]) / "hipcc.log"
        lines = [line for line in log.read_text().splitlines() if " -c " in line] if log.exists() else []
        log.unlink(missing_ok=True)
        return [Path(word).stem for line in lines for word in line.split() if word.endswith(".hip")]


def make_machine(folder: Path, shared: Path, environ: Mapping[str, str]) -> Machine:
    """A machine that has all downloads, environments and proofs of the cache `shared`, and has compiled nothing."""
    make_build_environment(shared)
    folder.mkdir()
    environments = [*shared.glob("env-*"), *Path(environ.get("ROCM_PATH", "/nowhere")).glob(f"{TOOLS}/tools-*")]
    for path in (*environments, *(shared / name for name in ("sources", "source-lists", "proofs", "plain"))):
        path.mkdir(exist_ok=True)
        (folder / path.name).symlink_to(path)
    return Machine(folder, environ)


def make_rocm(cache: Path, root: Path, python_folder: Path, *, real_torch: bool = True) -> Mapping[str, str]:
    """The environment of a machine with "ROCm 7.2.1" and "torch 2.13.0+rocm7.2" for the Python that runs this.

    Real: torch.utils.cpp_extension, hipify, ninja, the linker. Stand-ins: hipcc (logs its arguments, and gives each
    source the same object with a bundle for each requested arch), libamdhip64 (one symbol), and torch's claim that it
    is built for ROCm. Without `real_torch` there is only what the toolchain probe reads of torch: the import of the
    real one takes two seconds in each build, and `small_release` does not use it.
    """
    for folder in ("bin", "lib", "include", ".info"):
        (root / folder).mkdir()
    (root / ".info/version").write_text("7.2.1-120\n")
    shutil.copy(STAND_IN / "hipcc", root / "bin/hipcc")
    for archs in (("gfx90a", "gfx942", "gfx950"), ("gfx942", "gfx950")):
        _make_objects(root / "-".join(archs), archs)
    for name in ("libtorch_hip.so", "libc10_hip.so", "libamdhip64.so.7"):
        source = "int hip_stand_in = 7;" if "hip64" in name else ""
        _compile(source, root / "lib" / name, "-shared", "-fPIC", f"-Wl,-soname,{name}")
    (root / "lib/libamdhip64.so").symlink_to("libamdhip64.so.7")
    python = _rocm_python(cache, python_folder) if real_torch else _stub_python(python_folder)
    return {
        **{name: value for name, value in os.environ.items() if name not in LEAKS},
        "PATH": f"{python.folder}/bin:{os.environ['PATH']}",
        "ROCM_PATH": str(root),
        "ROCM_HOME": str(root),
        "STAND_IN_TORCH": "2.13.0",
        "DOCKER_HOST": NO_ENGINE,
    }


def install_build_tools(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Install the build tools of the factory over this Python, once for all machines of `environ`, which link to it."""
    cell = Cell.from_axes("2.8.3", f"3.{sys.version_info[1]}", "2.13.0", "7.2", Backend.CK)
    prepare_rocm_python(cell, index="", cache=Path(environ["ROCM_PATH"], TOOLS), environ=environ)
    return environ


def _make_objects(folder: Path, archs: tuple[str, ...]) -> None:
    """What hipcc gives for these archs: a small object for a kernel, a large one for the binding.

    Noise stands in for the weight of 2,199 kernels, as packing would make nothing of their equal objects.
    """
    folder.mkdir()
    (folder / "kernel.o").write_bytes(object_file(fatbin=hip_bundle(*archs)))
    binding = (STAND_IN / "binding.c").read_text()
    noise = random.Random(0)  # noqa: S311 - the same bytes each time
    heavy = hip_bundle(objects={arch: code_object(arch) + noise.randbytes(8_000_000) for arch in archs})
    flags = (f"-I{sysconfig.get_path('include')}",)
    (folder / "binding.o").write_bytes(object_file(fatbin=heavy, source=binding, flags=flags))


def _compile(source: str, output: Path, *flags: str) -> None:
    subprocess.run(["cc", "-x", "c", "-", *flags, "-o", output], input=source, text=True, check=True)


def _stub_python(folder: Path) -> Environment:
    python = make_empty_environment(folder)
    for name, text in STUB_TORCH.items():
        path = python.site_packages / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return python


def _rocm_python(cache: Path, folder: Path) -> Environment:
    python = make_empty_environment(folder)
    with file_lock(cache, "environments"):
        layer = make_build_environment(cache).site_packages
    (python.site_packages / "layers.pth").write_text(f"{layer}\n")
    shutil.copy(STAND_IN / "rocm_torch.py", python.site_packages)
    (python.site_packages / "stand_in.pth").write_text("import rocm_torch\n")
    return python
