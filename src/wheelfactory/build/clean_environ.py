"""Remove variables that would change a build unnoticed from its environment."""

from __future__ import annotations

from collections.abc import Mapping

# prefixes of variables that upstream's setup.py, torch's cpp_extension, a compiler, a compiler cache that the user has
# in front of one, or Python reads
_REMOVED_PREFIXES = (
    *("FLASH_ATT", "GPU_ARCHS", "OPT_DIM", "CK_TILE_", "MAX_JOBS", "PYTORCH_ROCM_ARCH", "BUILD_TRITON_BACKEND"),
    *("HIPCC_", "PYTORCH_NVCC", "NVCC_", "TORCH_NVCC_", "CCACHE_", "SCCACHE_", "WHEELFACTORY_"),
    # setup.py of aiter
    *("AITER_", "ENABLE_CK", "PREBUILD_", "PRETUNE_", "SETUPTOOLS_SCM_"),
    *("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"),
)


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment without variables that influence builds."""
    return {name: value for name, value in environ.items() if not name.startswith(_REMOVED_PREFIXES)}
