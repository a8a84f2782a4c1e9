"""The build record: what a wheel was built from and with, as JSON inside its dist-info."""

from __future__ import annotations

from pydantic import Field

from wheelfactory.core.cell import Cell, same_rocm
from wheelfactory.core.digest import SHA256
from wheelfactory.core.errors import InputError
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel

_VERSION = r"^[0-9][0-9A-Za-z.+_-]{0,63}$"


class Toolchain(FrozenModel):
    """What compiled the wheel; empty for a wheel without compiled code."""

    torch: str | None = Field(default=None, pattern=_VERSION)
    """torch as the compile saw it, such as ``2.9.1+rocm6.4``."""
    hip: str | None = Field(default=None, pattern=_VERSION)
    """``torch.version.hip``; upstream picks its compiler flags by it."""
    cxx11_abi: bool | None = None
    compiler: str | None = Field(default=None, pattern=r"^[ -~]{1,1000}$")
    """The first line that it says of itself."""
    glibc: str | None = Field(default=None, pattern=r"^\d{1,3}(\.\d{1,3}){1,2}$")
    python: str | None = Field(default=None, pattern=r"^3\.\d{1,3}$")

    def matches(self, cell: Cell) -> bool:
        """Whether it can compile, or has compiled, for a cell: same Python, same torch, built for the cell's ROCm."""
        if self.torch is None or self.hip is None or self.python != cell.python:
            return False
        return self.torch.partition("+")[0] == cell.torch and same_rocm(self.hip, cell.rocm)


class BuildRecord(FrozenModel):
    """Everything a wheel cannot say in its name; holds nothing that differs between two equal builds."""

    format: int = Field(default=1, ge=1, le=1)
    cell: str
    label: str
    offload_archs: tuple[str, ...]
    source: str
    """``sha256:...`` of the sdist or ``commit:...``."""
    kernels: str | None = Field(default=None, pattern=rf"^{SHA256}$")
    """The key of the kernel set it was linked from: 64 hex digits; None for a wheel without compiled kernels."""
    toolchain: Toolchain = Toolchain()

    def as_bytes(self) -> bytes:
        """The record as it stands in the wheel."""
        return self.model_dump_json(indent=2).encode() + b"\n"


def read_build_record(wheel: Wheel) -> BuildRecord | None:
    """The build record of a wheel, or None if it has none (it is not of this factory, or not finished)."""
    member = f"{wheel.dist_info}/{BUILD_RECORD_NAME}"
    if member not in wheel.sizes:
        return None
    return parse_build_record(wheel.read(member), f"{member} in {wheel.path.name}")


def parse_build_record(data: bytes, source: str) -> BuildRecord:
    """A build record from its JSON. Raises `InputError` with `place` if it is none."""
    return parse_model(BuildRecord, data, InputError("damaged build record", source, "build or download it again"))
