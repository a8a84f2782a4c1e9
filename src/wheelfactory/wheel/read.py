"""A wheel file -> what it says about itself and what it holds; reads any wheel in the world."""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from typing import IO

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, NormalizedName, parse_wheel_filename
from packaging.version import Version

from wheelfactory.core.errors import InputError
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.elf.image import MAGIC, DamagedElfError
from wheelfactory.wheel.elf.read import ElfFile, read_elf

BUILD_RECORD_NAME = "wheelfactory.json"
"""The build record inside dist-info."""

_LONGEST_TEXT = 1 << 25
"""Bytes of a member that is read as a whole; RECORD, the longest of them, has some 100 for each member."""
_LONGEST_HEADERS = 1 << 21
"""Bytes of METADATA and WHEEL; a hostile one keeps `packaging` busy for a second per 100,000 bytes."""


@dataclass(frozen=True)
class Wheel:
    """An open look at a wheel file; reading happens when a property is asked for."""

    path: Path
    name: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[Tag]

    @classmethod
    def open(cls, path: Path) -> Wheel:
        """A wheel by its file. Raises `InputError` if the file is no wheel or its name is none."""
        try:
            name, version, build, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            raise InputError(
                "not a wheel file name", f"{path.name} ({error})", "wheels are NAME-VERSION-TAGS.whl"
            ) from None
        if not path.is_file():
            raise InputError("no such file", str(path), "name a wheel file")
        try:
            is_zip = zipfile.is_zipfile(path)
        except zipfile.BadZipFile:  # it ends like one, but what is said there cannot be
            is_zip = False
        if not is_zip:
            raise InputError("not a zip file", str(path), "the file is damaged or was not downloaded whole")
        return cls(path, name, version, build, tags)

    @property
    def platform_tags(self) -> tuple[str, ...]:
        """The platform tags in its name, such as ``manylinux_2_28_x86_64``."""
        return tuple(sorted({tag.platform for tag in self.tags}))

    @property
    def glibc(self) -> Version | None:
        """The oldest glibc that its platform tags let it be installed on, or None if no tag names one."""
        found = [match for tag in self.platform_tags if (match := re.match(r"manylinux_(\d+)_(\d+)_", tag))]
        return min((Version(f"{match[1]}.{match[2]}") for match in found), default=None)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Its members and their unpacked sizes in bytes."""
        with open_archive(self.path) as archive:
            return {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}

    @cached_property
    def executables(self) -> frozenset[str]:
        """The names of the members that are programs."""
        with open_archive(self.path) as archive:
            return frozenset(info.filename for info in archive.infolist() if info.external_attr >> 16 & 0o111)

    @cached_property
    def dist_info(self) -> str:
        """The name of its dist-info folder. Raises `InputError` if it has none or several."""
        found = {name.partition("/")[0] for name in self.sizes if "/" in name}
        found = {name for name in found if name.endswith(".dist-info")}
        if len(found) != 1:
            raise InputError(f"{len(found)} dist-info folders", self.path.name, "a wheel has exactly one")
        return found.pop()

    def read(self, member: str) -> bytes:
        """The bytes of a member. Raises `InputError` if it has none of that name, or one too long to be text."""
        if self.sizes.get(member, 0) > _LONGEST_TEXT:
            raise _too_long(member, self.path, self.sizes[member])
        try:
            with open_archive(self.path) as archive:
                return archive.read(member)
        except KeyError:
            raise InputError(
                "missing from the wheel", f"{member} in {self.path.name}", "build or download it again"
            ) from None

    def read_members(self, names: Iterable[str]) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
        """Members that it has, with their bytes. Raises `InputError` for one that is too long to be text."""
        with open_archive(self.path) as archive:  # once: to look at its layout takes longer than to read a member
            for name in names:
                if self.sizes[name] > _LONGEST_TEXT:
                    raise _too_long(name, self.path, self.sizes[name])
                yield archive.getinfo(name), archive.read(name)

    @cached_property
    def metadata_bytes(self) -> bytes:
        """METADATA as it stands in the wheel."""
        return self.read(f"{self.dist_info}/METADATA")

    @cached_property
    def metadata_text(self) -> str:
        """METADATA as text. Raises `InputError` if it is not UTF-8."""
        return _decode(self.metadata_bytes, "METADATA", self.path)

    @cached_property
    def metadata(self) -> Message:
        """METADATA, its headers parsed; the description below them is text, whatever Content-Type says."""
        return HeaderParser().parsestr(self.metadata_text)

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """What it requires. Raises `InputError` for a requirement that nobody can read."""
        try:
            return tuple(Requirement(str(text)) for text in self.metadata.get_all("Requires-Dist", []))
        except (InvalidRequirement, RecursionError) as error:  # brackets in brackets, a thousand deep
            raise self._damaged("Requires-Dist", error) from None

    @cached_property
    def requires_python(self) -> SpecifierSet:
        """The Pythons it is for. Raises `InputError` for a specifier that nobody can read."""
        try:
            return SpecifierSet(str(self.metadata["Requires-Python"] or ""))
        except InvalidSpecifier as error:
            raise self._damaged("Requires-Python", error) from None

    def _damaged(self, field: str, error: Exception) -> InputError:
        return InputError("damaged METADATA", f"{field} in {self.path.name}: {error}", "build or download it again")

    @cached_property
    def wheel_tags(self) -> frozenset[str]:
        """The tags that the WHEEL file states."""
        headers = HeaderParser().parsestr(_decode(self.read(f"{self.dist_info}/WHEEL"), "WHEEL", self.path))
        return frozenset(map(str, headers.get_all("Tag", [])))

    @cached_property
    def elf_files(self) -> tuple[ElfFile, ...]:
        """Every ELF file it holds, whatever it is called."""
        with open_archive(self.path) as archive:
            found = [read_elf_member(archive, name) for name in sorted(self.sizes)]
        return tuple(item for item in found if item)


def _decode(data: bytes, member: str, path: Path) -> str:
    if len(data) > _LONGEST_HEADERS:
        raise _too_long(member, path, len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"damaged {member}", f"{path.name} ({error})", f"{member} is UTF-8 text") from None


def _too_long(member: str, path: Path, size: int) -> InputError:
    which = f"{member} in {path.name}: {size:,} bytes"
    return InputError("too long", which, "no wheel has that much text: do not install it")


def read_elf_member(archive: zipfile.ZipFile, name: str) -> ElfFile | None:
    """The ELF file that a member is, or None. Raises `InputError` if it is damaged."""
    data = map_elf_member(archive, name)
    return None if data is None else _read_elf(name, data)


def read_elf_file(name: str, file: IO[bytes]) -> ElfFile:
    """What an open ELF file holds, read where it lies. Raises `InputError` with `name` if it is damaged."""
    return _read_elf(name, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _read_elf(name: str, data: mmap.mmap) -> ElfFile:
    try:
        return read_elf(name, data)
    except DamagedElfError as error:
        raise InputError("damaged ELF file", f"{name} ({error})", "build or download it again") from None


def map_elf_member(archive: zipfile.ZipFile, name: str) -> mmap.mmap | None:
    """The bytes of a member if it is an ELF file, else None.

    It is unpacked to a file without a name and mapped, so memory does not bound it.
    """
    with archive.open(name) as member:
        magic = member.read(len(MAGIC))
        if magic != MAGIC:
            return None
        with tempfile.TemporaryFile() as file:
            file.write(magic)
            shutil.copyfileobj(member, file, 1 << 20)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
