"""What is installed as the factory: its version, and the files that it hands to a build.

The files are beside `src` in a checkout, in the package once it is installed.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parents[1]
"""The factory itself, of which programs in a container import modules."""

_DATA = PACKAGE_DIR / "data"
ROOT = _DATA if _DATA.is_dir() else PACKAGE_DIR.parents[1]
"""The folder of these files; pyproject.toml lays out the installed one like a checkout."""

MATRIX = ROOT / "matrix.yaml"
BUILD_SCRIPT = ROOT / "build_rocm.sh"
"""The one script that runs setup.py, here and in a container."""
TOOLCHAIN_PROBE = ROOT / "scripts/probe_toolchain.py"
"""Run by a build's Python to say what torch and compiler it has."""
DOCKER = ROOT / "docker"
"""The template of the images that cells are built in."""
FALLBACK_SOURCES = ROOT / "packages/flash_attention_amd"
"""The sources of flash-attention-amd, which releases carry beside flash-attn."""


def factory_version() -> str:
    """Of the installed distribution; ``not installed`` for a checkout that is run as it is, as create_matrix.py is."""
    try:
        return version("wheelfactory")
    except PackageNotFoundError:
        return "not installed"
