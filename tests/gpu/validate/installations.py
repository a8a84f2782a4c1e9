"""Fictitious installed packages and computed results, by default all correct."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from wheel_factory import TRITON, build_record
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.label import Label
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validate.installed import InstalledDistribution, InstalledPackage
from wheelfactory.verify.accuracy import TOLERANCES, NumericCase, NumericReport

SITE = "/venv/lib/python3.12/site-packages"
FILES = {
    Backend.CK: f"{SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
    Backend.TRITON: f"{SITE}/flash_attn/flash_attn_triton_amd/interface_fa.py",
}
"""The module that computes."""

MI300X = TorchPython(
    python=Path("/venv/bin/python"),
    version="3.12",
    torch="2.13.0+rocm7.2",
    hip="7.2.53211",
    cuda=None,
    triton="3.7.1",
    vendor="amd",
    device="AMD Instinct MI300X",
    arch="gfx942",
)
H200 = replace(MI300X, torch="2.13.0+cu130", hip=None, cuda="13.0", vendor="nvidia", device="NVIDIA H200", arch="sm_90")
NO_GPU = TorchPython(Path("/venv/bin/python"), "3.12", "2.13.0+cpu", hip=None, cuda=None, triton=None)


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


def case(name: str = "causal float16", error: str | None = None, **errors: tuple[float, float]) -> NumericCase:
    """A case whose results are as far off as rounding alone makes them, unless they are given."""
    return NumericCase(name=name, errors=errors or {"output": (0.001, 0.001), "dq": (0.002, 0.002)}, exception=error)


def numbers(called: Backend = Backend.TRITON, /, *cases: NumericCase, **changes: Any) -> NumericReport:
    """What the program says of a good wheel that calls this backend."""
    module = TOLERANCES[called].module
    truth: dict[str, Any] = {
        "torch": "2.13.0+rocm7.2",
        "triton": "3.7.1",
        "gpu": "gfx942",
        "backend": module,
        "file": FILES[called],
        "from_wheel": True,
        "cases": cases or (case(),),
        "left_out": (),
        "call_counts": {f"{module}.fwd": 2, f"{module}.bwd": 1},
        "dropped": (),
    }
    return NumericReport(**{**truth, **changes})
