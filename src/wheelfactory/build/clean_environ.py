"""The environment of a process -> that of a build, without what would change it unseen."""

from __future__ import annotations

from collections.abc import Mapping

_FOREIGN = (
    *("FLASH_ATT", "GPU_ARCHS", "OPT_DIM", "CK_TILE_", "MAX_JOBS", "PYTORCH_ROCM_ARCH", "BUILD_TRITON_BACKEND"),
    *("HIPCC_", "PYTORCH_NVCC", "NVCC_", "TORCH_NVCC_", "CCACHE_", "SCCACHE_", "WHEELFACTORY_"),
    *("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"),
)
"""Beginnings of variables that upstream's setup.py, torch's cpp_extension, a compiler or Python would read."""


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without flags and paths that are meant for something else."""
    return {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}
