"""What every stage that touches the machine is given: the facts, the machine, and where to keep things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.host import Host
from wheelfactory.matrix import Matrix


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
        """The environment without what a person may have exported for some other build of flash-attn."""
        foreign = (
            "FLASH_ATTENTION_",
            "FLASH_ATTN_",
            "GPU_ARCHS",
            "PYTORCH_ROCM_ARCH",
            "BUILD_TRITON_BACKEND",
            "OPT_DIM",
        )
        return {name: value for name, value in self.environ.items() if not name.startswith(foreign)}
