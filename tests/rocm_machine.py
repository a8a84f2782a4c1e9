"""A machine with ROCm as far as it can be had: one that ends at the compiler; and several, each with its own cache."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from code_object_bytes import code_object
from elf_factory import hip_bundle, object_file
from kernel_project import HIPCC
from shared_folder import file_lock
from wheelfactory.build.environments import Environment, make_build_environment, make_empty_environment
from wheelfactory.build.executor import prepare_rocm_python
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.host import Host
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.hipcc import kernel_name
from wheelfactory.kernels.compiler.objects import embed
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.kernels.kernel_set import sets_of_cell
from wheelfactory.kernels.setup_env import store_folder
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix

STAND_IN = Path(__file__).parent / "rocm_stand_in"

LEAKS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PYTORCH_ROCM_ARCH", "ROCM_PATH", "ROCM_HOME", "MAX_JOBS", "GPU_ARCHS")
"""Variables of the person who runs the tests that would change what they test."""

NO_ENGINE = "unix:///nowhere/docker.sock"
"""A container engine that does not answer, so that what is tested is built on this machine."""

CELL = Cell.from_axes("2.8.3", f"3.{sys.version_info[1]}", "2.13.0", "7.2", Backend.CK)
"""A cell that such a machine can build."""

ARCHS = ("gfx90a", "gfx942", "gfx950")
"""The archs of that cell, and all that the stand-in for hipcc compiles for."""

KERNEL_SETS = sets_of_cell(load_matrix(MATRIX), CELL)
"""The kernel sets that the cell links: the code for each arch, and the host code."""

FIRST_CELL_LOG = "first-cell.log"
"""The log of hipcc on a machine that compiled the whole cell, beside the archives of the fixture `kernel_archives`."""

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
        """What hipcc has compiled since this was asked last, in the form of `read_compiles`."""
        log = Path(self.environ["ROCM_PATH"]) / "hipcc.log"
        text = log.read_text() if log.exists() else ""
        log.unlink(missing_ok=True)
        return read_compiles(text)


def read_compiles(log: str) -> list[str]:
    """What the commands in a log of hipcc compile: ``flash_api`` for a binding, ``NAME for TARGETS`` for a kernel.

    The targets are an arch, ``host``, or for an ordinary compile all of them: ``gfx90a gfx942 host``.
    """
    return [_describe_compile(line.split()) for line in log.splitlines() if " -c " in line]


def _describe_compile(words: list[str]) -> str:
    name = next(kernel_name(word) for word in words if word.endswith(".hip"))
    if not name.startswith("fmha_"):
        return name
    archs = [word.partition("=")[2] for word in words if word.startswith("--offload-arch=")]
    if "--cuda-host-only" in words:
        archs = []
    return f"{name} for {' '.join(archs if '--cuda-device-only' in words else [*archs, HOST])}"


def count_targets(compiled: Iterable[str]) -> Counter[str]:
    """How often `Machine.compiled` names each list of targets; the bindings count as an empty one."""
    return Counter(name.partition(" for ")[2] for name in compiled)


def ordinary(*archs: str) -> str:
    """The targets of an ordinary compile for these archs, as `Machine.compiled` names them."""
    return " ".join([*archs, HOST])


def make_machine(folder: Path, shared: Path, environ: Mapping[str, str]) -> Machine:
    """A machine that has all downloads, environments and proofs of the cache `shared`, and has compiled nothing."""
    make_build_environment(shared)
    folder.mkdir()
    environments = [*shared.glob("env-*"), *Path(environ.get("ROCM_PATH", "/nowhere")).glob(f"{TOOLS}/tools-*")]
    for path in (*environments, *(shared / name for name in ("sources", "source-lists", "proofs", "plain"))):
        path.mkdir(exist_ok=True)
        (folder / path.name).symlink_to(path)
    return Machine(folder, environ)


def pack_kernels(machine: Machine, folder: Path, set_ids: Sequence[str] = KERNEL_SETS) -> None:
    """Pack what `machine` has compiled for a cell with these sets, as the command `kernels` does.

    The command itself runs setup.py for each set, which takes half a minute of hipify.
    """
    kernels = store_folder(machine.cache)
    for described in kernels.glob("*/set.json"):
        store = Store(kernels, SetKey.from_bytes(described.read_bytes()))
        set_id = dict(zip([*ARCHS, HOST], set_ids, strict=True))[store.key.parts["targets"][0]]
        pack_archive(store, set_id, folder, None)


def make_rocm(cache: Path, root: Path, python_folder: Path, *, real_torch: bool = True) -> Mapping[str, str]:
    """The environment of a machine with "ROCm 7.2.1" and "torch 2.13.0+rocm7.2" for the Python that runs this.

    Real: torch.utils.cpp_extension, hipify, ninja, the linker. Stand-ins: hipcc (logs its arguments, and gives each
    source the same object for the requested targets), its offload bundler, libamdhip64 (one symbol), and torch's claim
    that it is built for ROCm. Without `real_torch` there is only what the toolchain probe reads of torch: the import of
    the real one takes two seconds in each build, and `small_release` does not use it.
    """
    for folder in ("bin", "lib", "include", ".info"):
        (root / folder).mkdir()
    (root / ".info/version").write_text("7.2.1-120\n")
    _compile((STAND_IN / "hipcc.c").read_text(), root / "bin/hipcc", "-O1")
    (root / "bin/clang-offload-bundler").write_text(HIPCC)
    (root / "bin/clang-offload-bundler").chmod(0o755)
    _make_objects(root / "objects")
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
        "STAND_IN_TORCH": "2.13.0+rocm7.2",
        "DOCKER_HOST": NO_ENGINE,
    }


def install_build_tools(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Install the build tools of the factory over this Python, once for all machines of `environ`, which link to it."""
    prepare_rocm_python(CELL, Context(load_matrix(MATRIX), Host(1, 1), environ, Path(environ["ROCM_PATH"], TOOLS)))
    return environ


def _make_objects(folder: Path) -> None:
    """What hipcc gives for each list of targets: small objects of a kernel, and a large one of the binding.

    Noise stands in for the weight of 2,199 kernels, as packing would make nothing of their equal objects.
    """
    host = embed(object_file(fatbin=hip_bundle("gfx942")), b"\0")
    api = embed(object_file(fatbin=b""), b"")  # no kernel, so nothing to register
    _write(folder / HOST, **{"kernel.o": host, "api.o": api})
    for count in range(1, len(ARCHS) + 1):
        for archs in combinations(ARCHS, count):
            _write(folder / "-".join([*archs, HOST]), **{"kernel.o": embed(host, hip_bundle(*archs)), "api.o": api})
    for arch in ARCHS:
        _write(folder / arch, **{"kernel.o": code_object(arch)})
    source, flags = (STAND_IN / "binding.c").read_text(), (f"-I{sysconfig.get_path('include')}",)
    noise = random.Random(0)  # noqa: S311 - the same bytes each time
    heavy = {arch: code_object(arch, code=noise.randbytes(8_000_000)) for arch in ARCHS}
    for archs in (ARCHS, ("gfx942", "gfx950"), ("gfx942",)):
        fatbin = hip_bundle(objects={arch: heavy[arch] for arch in archs})
        binding = object_file(fatbin=fatbin, source=source, flags=flags)
        _write(folder / "-".join([*archs, HOST]), **{"binding.o": binding})


def _write(folder: Path, **files: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


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
