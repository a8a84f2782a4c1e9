"""Fictitious Pythons and installed packages, by default correct."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from numeric_reports import FILES, SITE
from wheel_factory import TRITON, build_record
from wheelfactory.core.cell import Cell
from wheelfactory.core.label import Label
from wheelfactory.gpu.installed import InstalledDistribution, InstalledPackage
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validation_report import Hardware, Software

MI300X = TorchPython(
    Path("/venv/bin/python"),
    Software(python="3.12", torch="2.13.0+rocm7.2", hip="7.2.53211", triton="3.7.1"),
    Hardware(vendor="amd", device="AMD Instinct MI300X", arch="gfx942"),
)
H200 = TorchPython(
    MI300X.python,
    Software(python="3.12", torch="2.13.0+cu130", cuda="13.0", triton="3.7.1"),
    Hardware(vendor="nvidia", device="NVIDIA H200", arch="sm_90"),
)
NO_GPU = TorchPython(MI300X.python, Software(python="3.12", torch="2.13.0+cpu"))


def with_software(python: TorchPython, **changes: str | None) -> TorchPython:
    """A Python with other versions."""
    return replace(python, software=python.software.model_copy(update=changes))


def with_arch(arch: str) -> TorchPython:
    """A Python whose torch sees a GPU of this arch."""
    return replace(MI300X, gpu=MI300X.gpu.model_copy(update={"arch": arch}))


def installed(cell: Cell = TRITON, **changes: Any) -> InstalledPackage:
    """What a wheel of a cell is where it is installed, with fields of its distribution changed."""
    label = Label.from_cell(cell)
    truth: dict[str, Any] = {
        "version": f"{cell.flash_attn}+{label}",
        "requires": (label.torch_pin, "einops"),
        "record": build_record(cell).as_bytes().decode(),
        "direct_url": None,
        "files": (f"{SITE}/flash_attn/__init__.py", FILES[cell.backend]),
        "record_mismatches": (),
    }
    return InstalledPackage(
        project="flash-attn", distribution=InstalledDistribution(**{**truth, **changes}), has_numpy=True
    )


def fallback() -> InstalledPackage:
    """flash-attention-amd where it is installed."""
    files = (f"{SITE}/flash_attention_amd/__init__.py",)
    found = installed(version="0.1.0", requires=("torch>=2.5",), record=None, files=files)
    return found.model_copy(update={"project": "flash-attention-amd"})
