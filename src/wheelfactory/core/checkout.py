"""Paths of the factory's own files, and its version.

The files lie beside `src` in a checkout and inside the package after installation.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parents[1]
"""The package folder; programs in a container import modules from it."""

_DATA = PACKAGE_DIR / "data"
ROOT = _DATA if _DATA.is_dir() else PACKAGE_DIR.parents[1]
"""The folder of the files below; pyproject.toml gives an installation the layout of a checkout."""

MATRIX = ROOT / "matrix.yaml"
BUILD_SCRIPT = ROOT / "build_rocm.sh"
"""The script that runs upstream's setup.py, on the host and in a container."""
TOOLCHAIN_PROBE = ROOT / "scripts/probe_toolchain.py"
"""Reports the torch and the compiler of the Python that runs it."""
DOCKER = ROOT / "docker"
"""The Dockerfile template of the build images."""
FALLBACK_SOURCES = ROOT / "packages/flash_attention_amd"
"""The sources of flash-attention-amd, which every release carries beside flash-attn."""


def factory_version() -> str:
    """The version of the installed distribution; in a checkout, which is not installed, that of pyproject.toml."""
    if _DATA.is_dir():
        return version("wheelfactory")
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("version = ")).split('"')[1]
