"""What several tests need: a cache of environments, and a ROCm that ends at the compiler."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from elf_factory import code_object, hip_bundle, object_file
from wheelfactory.environments import Environment, build_environment, empty_environment

STAND_IN = Path(__file__).parent / "rocm_stand_in"

LEAKS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PYTORCH_ROCM_ARCH", "ROCM_PATH", "ROCM_HOME", "MAX_JOBS", "GPU_ARCHS")
"""Variables of the person who runs the tests that would change what they test."""


@pytest.fixture(autouse=True)
def _no_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LEAKS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def cache() -> Path:
    """Downloads and environments, kept between runs as the command keeps them."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "wheelfactory"


@pytest.fixture
def kernel_cache(cache: Path, tmp_path: Path) -> Path:
    """The cache without any kernel: what was downloaded and installed, and nothing that was compiled."""
    build_environment(cache)
    own = tmp_path / "cache"
    own.mkdir()
    for path in (*cache.glob("env-*"), cache / "sources"):
        path.mkdir(exist_ok=True)
        (own / path.name).symlink_to(path)
    return own


@pytest.fixture(scope="session")
def rocm(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a machine with "ROCm 7.2.1" and "torch 2.13.0+rocm7.2" for the Python that runs this.

    Real: torch.utils.cpp_extension, hipify, ninja, the linker. Stand-ins: hipcc (records, and gives each source the
    same object with a bundle of headers for the archs asked for), libamdhip64 (one symbol), and torch's word that it
    is built for ROCm.
    """
    root = tmp_path_factory.mktemp("rocm")
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
    python = _rocm_python(cache, tmp_path_factory.mktemp("python") / "venv")
    return {
        **{name: value for name, value in os.environ.items() if name not in LEAKS},
        "PATH": f"{python.folder}/bin:{os.environ['PATH']}",
        "ROCM_PATH": str(root),
        "ROCM_HOME": str(root),
        "STAND_IN_TORCH": "2.13.0",
    }


def _make_objects(folder: Path, archs: tuple[str, ...]) -> None:
    """What hipcc gives for these archs: a small object for a kernel, a large one for the binding.

    Noise stands in for the weight of 2,775 kernels, as packing would make nothing of their equal objects.
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


def _rocm_python(cache: Path, folder: Path) -> Environment:
    python = empty_environment(folder)
    layer = build_environment(cache).site_packages
    (python.site_packages / "layers.pth").write_text(f"{layer}\n")
    shutil.copy(STAND_IN / "rocm_torch.py", python.site_packages)
    (python.site_packages / "stand_in.pth").write_text("import rocm_torch\n")
    return python


@pytest.fixture
def this_python() -> str:
    """The version of the Python that runs the tests, as cells name it."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
