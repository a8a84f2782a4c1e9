"""The build record: sources, kernels and toolchain of a wheel, as JSON inside its dist-info."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from wheelfactory.core.cell import Cell, major_minor, public_version, same_rocm
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import TorchOrigin, find_origin, rocm_of_torch
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.strict import SHA256
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel

_VERSION = r"^[0-9][0-9A-Za-z.+_-]{0,63}$"


class Toolchain(FrozenModel):
    """What compiled the wheel; all None for a wheel without compiled code."""

    torch: str | None = Field(default=None, pattern=_VERSION)
    """The torch version used for the compile, such as ``2.9.1+rocm6.4``."""
    hip: str | None = Field(default=None, pattern=_VERSION)
    """``torch.version.hip``; upstream picks its compiler flags by it."""
    cxx11_abi: bool | None = None
    compiler: str | None = Field(default=None, pattern=r"^[ -~]{1,1000}$")
    """The version lines of ``hipcc --version``."""
    glibc: str | None = Field(default=None, pattern=r"^\d{1,3}(\.\d{1,3}){1,2}$")
    python: str | None = Field(default=None, pattern=r"^3\.\d{1,3}$")

    def matches(self, cell: Cell) -> bool:
        """Whether it has the cell's Python, and the cell's torch built for the cell's ROCm, by PyTorch or by AMD."""
        if self.torch is None or self.hip is None or self.python != cell.python:
            return False
        rocm = major_minor(cell.rocm)
        # HIP has a number of its own from ROCm 10.0 on
        fits = rocm_of_torch(self.torch, self.hip) == rocm and (rocm >= (10, 0) or same_rocm(self.hip, cell.rocm))
        is_of_pytorch = find_origin(self.torch) is TorchOrigin.PYTORCH
        return public_version(self.torch) == cell.torch and fits and is_of_pytorch is not cell.amd_torch


class BuildRecord(FrozenModel):
    """How a wheel was built. Two builds of the same inputs have equal records, so it holds no time and no path."""

    format: int = Field(default=1, ge=1, le=1)
    cell: str
    label: str
    offload_archs: tuple[str, ...]
    source: str
    """``sha256:...`` of the sdist or ``commit:...``."""
    kernels: str | None = Field(default=None, pattern=rf"^{SHA256}$")
    """The key of the linked kernel set, 64 hex digits; None without compiled kernels."""
    toolchain: Toolchain = Toolchain()
    build: str | None = Field(default=None, pattern="^(0[a-z]|[1-9][0-9]{0,5}[a-z]?)$")
    """The build tag of the file name; None for the first build of a release."""
    corrections: Mapping[str, tuple[int, ...]] | None = None
    """The corrected lines of upstream's files, by file; None for a wheel that is older than this field."""

    def as_bytes(self) -> bytes:
        """Return the bytes of the member `BUILD_RECORD_NAME`."""
        newer = {name for name in ("build", "corrections") if getattr(self, name) is None}
        return self.model_dump_json(indent=2, exclude=newer).encode() + b"\n"


def read_build_record(wheel: Wheel) -> BuildRecord | None:
    """Read the build record of a wheel; None if wheelfactory did not finish the wheel."""
    member = f"{wheel.dist_info}/{BUILD_RECORD_NAME}"
    if member not in wheel.sizes:
        return None
    return parse_build_record(wheel.read(member), f"{member} in {wheel.path.name}")


def parse_build_record(data: bytes, source: str) -> BuildRecord:
    """Parse a build record. Raises `InputError` that names `source` if it is damaged."""
    return parse_model(BuildRecord, data, InputError("damaged build record", source, "build or download it again"))
