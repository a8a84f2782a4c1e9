"""What programs report that compared a package with float64: by default as far off as rounding alone."""

from __future__ import annotations

from typing import Any

from wheelfactory.core.cell import Backend
from wheelfactory.verify.accuracy import TOLERANCES, NumericCase, NumericReport, Tolerance

SITE = "/venv/lib/python3.12/site-packages"
FILES = {
    Backend.CK: f"{SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
    Backend.TRITON: f"{SITE}/flash_attn/flash_attn_triton_amd/interface_fa.py",
}
"""The module that computes."""


def case(name: str = "causal float16", error: str | None = None, **errors: tuple[float, float]) -> NumericCase:
    """A case with these errors of its results."""
    return NumericCase(name=name, errors=errors or {"output": (0.001, 0.001), "dq": (0.002, 0.002)}, exception=error)


def numbers(called: Backend | Tolerance = Backend.TRITON, /, *cases: NumericCase, **changes: Any) -> NumericReport:
    """What the program says of a good wheel that calls this backend."""
    module = (TOLERANCES[called] if isinstance(called, Backend) else called).module
    truth: dict[str, Any] = {
        "torch": "2.13.0+rocm7.2",
        "triton": "3.7.1",
        "gpu": "gfx942",
        "backend": module,
        "file": FILES[called] if isinstance(called, Backend) else "/env/backend.py",
        "from_wheel": True,
        "cases": cases or (case(),),
        "left_out": (),
        "call_counts": {f"{module}.fwd": 2, f"{module}.bwd": 1},
        "dropped": (),
    }
    return NumericReport(**{**truth, **changes})
