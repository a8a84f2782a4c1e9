"""Which torch an installed version is: its ROCm, who built it, and the index that has it.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from wheelfactory.core.cell import major_minor


class TorchOrigin(str, Enum):
    """Who built a torch."""

    PYTORCH = "PyTorch's release"
    NIGHTLY = "a PyTorch nightly"
    AMD = "AMD's build"
    AMD_NIGHTLY = "an AMD nightly"
    OTHER = "another build"
    """Built from source, by a Linux distribution, in an image."""


# PyTorch writes two numbers, except for ROCm 6.2.4; AMD three or more, with a commit in its images
_PYTORCH = re.compile(r"[\d.]+\+(rocm(?:6\.2\.4|\d+\.\d+)|cu\d+|cpu)")
_NIGHTLY = re.compile(r"\.dev\d{8}")
_AMD_NIGHTLY = re.compile(r"\+rocm\d+\.\d+\.\d+(?:a|rc|\.dev)\d")
_AMD = re.compile(r"\+rocm(\d+)\.(\d+)\.\d+")


def find_origin(version: str) -> TorchOrigin:
    """Return who built the torch of a version such as ``2.9.1+rocm6.4``."""
    if _PYTORCH.fullmatch(version):
        return TorchOrigin.PYTORCH
    if _NIGHTLY.search(version):
        return TorchOrigin.NIGHTLY
    if _AMD_NIGHTLY.search(version):
        return TorchOrigin.AMD_NIGHTLY
    return TorchOrigin.AMD if _AMD.search(version) else TorchOrigin.OTHER


def rocm_of_torch(
    version: str, hip: str | None, rocm: str | None = None, hips: Mapping[str, str] | None = None
) -> tuple[int, int] | None:
    """Return the ROCm of a torch as (major, minor); None if nothing names it.

    By its label, then `rocm` (``torch.version.rocm``), then `hip` (``torch.version.hip``): up to ROCm 7 both numbers
    are equal, later ones are in `hips`, the HIP by ROCm of matrix.yaml.
    """
    named = re.search(r"\+rocm(\d+\.\d+)", version)
    if named or rocm:
        return major_minor(named[1] if named else str(rocm))
    if not hip or not re.match(r"\d", hip):
        return None
    same = (name for name, number in (hips or {}).items() if major_minor(number) == major_minor(hip))
    return major_minor(next(same, hip))


def find_own_index(version: str, indexes: Mapping[str, str]) -> str | None:
    """Return the index that has a torch of this version and its Triton; None if no index is known to.

    `indexes`: PyTorch's index by ROCm. Source of AMD's: its documentation (ai-ecosystem, pytorch/install).
    """
    origin, found = find_origin(version), _AMD.search(version)
    if origin is TorchOrigin.PYTORCH:
        return indexes.get(version.partition("+rocm")[2])
    nightly = re.search(r"\+(rocm\d+\.\d+)$", version) if origin is TorchOrigin.NIGHTLY else None
    if nightly:
        return f"https://download.pytorch.org/whl/nightly/{nightly[1]}"
    if origin is TorchOrigin.AMD_NIGHTLY:
        return "https://rocm.nightlies.amd.com/whl-multi-arch/"
    # the images of rocm/pytorch add a commit, and have no index
    if found is None or not re.search(r"\+rocm[\d.]+$", version) or major_minor(".".join(found.groups())) < (7, 14):
        return None
    is_next = int(found[1]) >= 10
    return "https://stable.repo.amd.com/rocm/whl-next/" if is_next else "https://repo.amd.com/rocm/whl-multi-arch/"
