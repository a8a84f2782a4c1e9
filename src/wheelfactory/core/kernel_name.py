"""Parse the names of generated kernel sources: ``fmha_bwd_d128_bf16_batch_..._gfx9``, ``fmha_fwd_splitkv_api``.

Source: the generators of Composable Kernel (example/ck_tile/01_fmha/codegen/ops/*.py), up to August 2026.
Also runs inside the build container, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"fmha_(?P<operation>[a-z_]+?)_(?:api|d(?P<head_dim>[0-9]{1,4}(?:x[0-9]{1,4})?))"
    r"(?:_(?P<rest>.*?))??(?:_(?P<arch>gfx[0-9a-f]+))?"
)


@dataclass(frozen=True)
class KernelName:
    """The parts of a name that all releases share."""

    operation: str
    """What the kernel computes: ``fwd``, ``bwd_dot_do_o``."""
    head_dim: str
    """``128``, or ``192x128`` if V has another head dimension; empty for an API source."""
    rest: str
    """The rest of the name: the data type, then tile, warps, pipeline, padding and options, joined by ``_``."""
    arch: str
    """The GPU family, such as ``gfx9``; empty for all families (flash-attn up to 2.8.3)."""

    @property
    def is_api(self) -> bool:
        """Whether the source selects a kernel at run time instead of defining one."""
        return not self.head_dim

    @property
    def type(self) -> str:
        """The data type, such as ``bf16``; empty for an API source."""
        return "" if self.is_api else self.rest.partition("_")[0]


def parse_kernel_name(name: str) -> KernelName | None:
    """Parse the name of a source, without folder and extension; None if no generator writes such a name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return KernelName(match["operation"], match["head_dim"] or "", match["rest"] or "", match["arch"] or "")


def is_dispatch(name: str) -> bool:
    """Whether a generated source (name without extension) chooses a kernel for a call, and is no kernel itself."""
    kernel = parse_kernel_name(name)
    return kernel is not None and kernel.is_api
