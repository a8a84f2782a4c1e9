"""Read a wheel file of any project: name, tags, metadata, members and ELF files, and the build record of one of ours.

The build record has sources, kernels and toolchain of a wheel, as JSON inside its dist-info.
"""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from typing import IO, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, NormalizedName, parse_wheel_filename
from packaging.version import Version
from pydantic import Field

from wheelfactory.core.cell import Cell, major_minor, product_name, public_version, same_rocm
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import TorchOrigin, find_origin, rocm_of_torch
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.strict import SHA256
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.elf.dynamic import Dynamic, read_dynamic
from wheelfactory.wheel.elf.image import MAGIC, DamagedElfError, ElfImage
from wheelfactory.wheel.elf.read import ElfFile, read_elf

BUILD_RECORD_NAME = "wheelfactory.json"
"""The build record inside dist-info."""

# bytes of a member that is read into memory; RECORD, the longest, has about 100 bytes for each member
_MAX_TEXT = 1 << 25
# bytes of METADATA; `packaging` needs a second for 100,000 hostile bytes
_MAX_HEADERS = 1 << 21

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Wheel:
    """A wheel file; each property reads the file on first use. All can raise `InputError` for a damaged archive."""

    path: Path
    name: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[Tag]

    @classmethod
    def open(cls, path: Path) -> Wheel:
        """Open a wheel; only its name is read yet. Raises `InputError` if no file has it, or it is not a wheel's."""
        if not path.is_file():
            raise InputError("no such file", str(path), "name a wheel file")
        try:
            name, version, build, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            hint = "wheels are NAME-VERSION-TAGS.whl"
            raise InputError("not a wheel file name", f"{path.name} ({error})", hint) from None
        return cls(path, name, version, build, tags)

    @property
    def product(self) -> str:
        """The name of its product, or the project of a wheel that is not a product."""
        return product_name(self.name, str(self.version))

    @property
    def platform_tags(self) -> tuple[str, ...]:
        """The platform tags in the file name, such as ``manylinux_2_28_x86_64``, sorted."""
        return tuple(sorted({tag.platform for tag in self.tags}))

    @property
    def glibc(self) -> Version | None:
        """The oldest glibc that the platform tags allow; None without a manylinux tag."""
        found = [match for tag in self.platform_tags if (match := re.match(r"manylinux_(\d+)_(\d+)_", tag))]
        return min((Version(f"{match[1]}.{match[2]}") for match in found), default=None)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The unpacked size of each member, in bytes."""
        with open_archive(self.path) as archive:
            return {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}

    @cached_property
    def executables(self) -> frozenset[str]:
        """The names of the members with execute permission."""
        with open_archive(self.path) as archive:
            return frozenset(info.filename for info in archive.infolist() if info.external_attr >> 16 & 0o111)

    @cached_property
    def dist_info(self) -> str:
        """The name of the dist-info folder. Raises `InputError` unless there is exactly one."""
        found = {name.partition("/")[0] for name in self.sizes if "/" in name}
        found = {name for name in found if name.endswith(".dist-info")}
        if len(found) != 1:
            raise InputError(f"{len(found)} dist-info folders", self.path.name, "a wheel has exactly one")
        return found.pop()

    def read(self, member: str) -> bytes:
        """Return the bytes of a member. Raises `InputError` if it is missing or longer than `_MAX_TEXT`."""
        if member not in self.sizes:
            raise InputError("missing from the wheel", f"{member} in {self.path.name}", "build or download it again")
        ((_, data),) = self.read_members([member])
        return data

    def read_members(self, names: Iterable[str]) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
        """Yield existing members with their bytes. Raises `InputError` for a member longer than `_MAX_TEXT`."""
        with open_archive(self.path) as archive:  # once: verifying the layout takes longer than reading a member
            for name in names:
                if self.sizes[name] > _MAX_TEXT:
                    raise _too_long(name, self.path, self.sizes[name])
                yield archive.getinfo(name), archive.read(name)

    @cached_property
    def metadata_bytes(self) -> bytes:
        """The bytes of METADATA."""
        return self.read(f"{self.dist_info}/METADATA")

    @cached_property
    def metadata_text(self) -> str:
        """METADATA as text. Raises `InputError` if it is not UTF-8, or longer than `_MAX_HEADERS`."""
        if len(self.metadata_bytes) > _MAX_HEADERS:
            raise _too_long("METADATA", self.path, len(self.metadata_bytes))
        try:
            return self.metadata_bytes.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError("damaged METADATA", f"{self.path.name} ({error})", "METADATA is UTF-8 text") from None

    @cached_property
    def metadata(self) -> Message:
        """The parsed headers of METADATA; the description is plain text, whatever Content-Type says."""
        return HeaderParser().parsestr(self.metadata_text)

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """The requirements in METADATA. Raises `InputError` if one is invalid."""
        try:
            return tuple(Requirement(str(text)) for text in self.metadata.get_all("Requires-Dist", []))
        except (InvalidRequirement, RecursionError) as error:  # RecursionError: a thousand nested brackets
            raise self._damaged("Requires-Dist", error) from None

    @cached_property
    def requires_python(self) -> SpecifierSet:
        """The supported Python versions. Raises `InputError` if the specifier is invalid."""
        try:
            return SpecifierSet(str(self.metadata["Requires-Python"] or ""))
        except InvalidSpecifier as error:
            raise self._damaged("Requires-Python", error) from None

    def _damaged(self, field: str, error: Exception) -> InputError:
        return InputError("damaged METADATA", f"{field} in {self.path.name}: {error}", "build or download it again")

    @cached_property
    def elf_files(self) -> tuple[ElfFile, ...]:
        """Every ELF file in the wheel, found by content, not by name."""
        return tuple(self._read_elf_members(read_elf))

    @cached_property
    def dynamics(self) -> Mapping[str, Dynamic]:
        """What every ELF file tells the loader, by name; its device code is not read."""
        return dict(self._read_elf_members(lambda name, data: (name, read_dynamic(ElfImage(data)))))

    def _read_elf_members(self, read: Callable[[str, mmap.mmap], _Read]) -> Iterator[_Read]:
        with open_archive(self.path) as archive:
            for name in sorted(self.sizes):
                with archive.open(name) as member, tempfile.TemporaryFile() as file:
                    if (magic := member.read(len(MAGIC))) == MAGIC:
                        # unpacked to an unnamed file and mapped: libraries may be larger than memory
                        file.write(magic)
                        shutil.copyfileobj(member, file, 1 << 20)
                        file.flush()
                        yield read_mapped(name, file, read)


def read_mapped(name: str, file: IO[bytes], read: Callable[[str, mmap.mmap], _Read]) -> _Read:
    """Return what `read` finds in an open ELF file. Raises `InputError` that names `name` if it is damaged."""
    try:
        return read(name, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except DamagedElfError as error:
        raise InputError("damaged ELF file", f"{name} ({error})", "build or download it again") from None


def _too_long(member: str, path: Path, size: int) -> InputError:
    which = f"{member} in {path.name}: {size:,} bytes"
    return InputError("too long", which, "do not install it: no real wheel has that much text")


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
