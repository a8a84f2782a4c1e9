"""What every stage that touches the machine is given: the facts, the machine, and where to keep things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Matrix

_FOREIGN = (
    *("FLASH_ATT", "GPU_ARCHS", "OPT_DIM", "CK_TILE_", "MAX_JOBS", "PYTORCH_ROCM_ARCH", "BUILD_TRITON_BACKEND"),
    *("HIPCC_", "PYTORCH_NVCC", "NVCC_", "TORCH_NVCC_", "CCACHE_", "SCCACHE_", "WHEELFACTORY_"),
    *("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"),
)
"""Beginnings of variables that upstream's setup.py, torch's cpp_extension, a compiler or Python would read."""


@dataclass(frozen=True)
class Workshop:
    """Where and with what cells are built and verified."""

    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    cache: Path
    """Downloads, environments, raw Triton wheels and logs; everything in it can be made again."""

    @property
    def clean_environ(self) -> dict[str, str]:
        """The environment without what would change a build unseen: flags and paths meant for something else."""
        return {name: value for name, value in self.environ.items() if not name.startswith(_FOREIGN)}
