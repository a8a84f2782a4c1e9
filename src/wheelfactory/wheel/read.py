"""A wheel file -> what it says about itself and what it holds; reads any wheel in the world."""

from __future__ import annotations

import errno
import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from functools import cached_property
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, NormalizedName, parse_wheel_filename
from packaging.version import Version

from wheelfactory.errors import InputError

RECORD_NAME = "wheelfactory.json"
"""The build record inside dist-info."""

_DAMAGE = (zipfile.BadZipFile, EOFError, IndexError, RuntimeError, ValueError, lzma.LZMAError, struct.error, zlib.error)
"""What zipfile raises for an archive that is damaged, encrypted, or packed in a way it does not know."""


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip archive of a wheel, to read from. Raises `InputError` if it is damaged, found at whatever member."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # bz2 says damage without a number, a seek before the start with it
            raise
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError("damaged zip file", f"{path} ({error})", "build or download it again")


@dataclass(frozen=True)
class SharedObject:
    """What an ELF file in a wheel says about its own loading."""

    name: str
    soname: str | None
    needed: tuple[str, ...]
    runpath: tuple[str, ...]


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
        if not zipfile.is_zipfile(path):
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
    def dist_info(self) -> str:
        """The name of its dist-info folder. Raises `InputError` if it has none or several."""
        found = {name.partition("/")[0] for name in self.sizes if "/" in name}
        found = {name for name in found if name.endswith(".dist-info")}
        if len(found) != 1:
            raise InputError(f"{len(found)} dist-info folders", self.path.name, "a wheel has exactly one")
        return found.pop()

    def read(self, member: str) -> bytes:
        """The bytes of a member. Raises `InputError` if it has none of that name."""
        try:
            with open_archive(self.path) as archive:
                return archive.read(member)
        except KeyError:
            raise InputError("missing from the wheel", f"{member} in {self.path.name}") from None

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
        """METADATA, its headers parsed."""
        return Parser().parsestr(self.metadata_text)

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """What it requires. Raises `InputError` for a requirement that nobody can read."""
        try:
            return tuple(Requirement(str(text)) for text in self.metadata.get_all("Requires-Dist", []))
        except InvalidRequirement as error:
            raise InputError("damaged METADATA", f"Requires-Dist in {self.path.name}: {error}") from None

    @cached_property
    def requires_python(self) -> SpecifierSet:
        """The Pythons it is for. Raises `InputError` for a specifier that nobody can read."""
        try:
            return SpecifierSet(str(self.metadata["Requires-Python"] or ""))
        except InvalidSpecifier as error:
            raise InputError("damaged METADATA", f"Requires-Python in {self.path.name}: {error}") from None

    @cached_property
    def wheel_tags(self) -> frozenset[str]:
        """The tags that the WHEEL file states."""
        headers = Parser().parsestr(_decode(self.read(f"{self.dist_info}/WHEEL"), "WHEEL", self.path))
        return frozenset(map(str, headers.get_all("Tag", [])))

    @cached_property
    def shared_objects(self) -> tuple[SharedObject, ...]:
        """Every ELF file it holds, whatever it is called."""
        with open_archive(self.path) as archive:
            found = [_read_elf(archive, name) for name in sorted(self.sizes)]
        return tuple(item for item in found if item)


def _decode(data: bytes, member: str, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"damaged {member}", f"{path.name} ({error})", f"{member} is UTF-8 text") from None


_TEXT_OF = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RUNPATH": "runpath", "DT_RPATH": "rpath"}
"""The dynamic tags that hold a text, and what pyelftools calls it."""

_ELF_DAMAGE = (ELFError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What pyelftools raises for a damaged file: it checks little of what it reads before it uses it."""


def _read_elf(archive: zipfile.ZipFile, name: str) -> SharedObject | None:
    with archive.open(name) as file:
        if file.read(4) != b"\x7fELF":
            return None
    data = archive.read(name)
    try:
        # by segment, as the loader does: sections may have been stripped
        segments = ELFFile(io.BytesIO(data)).iter_segments()
        tags = [tag for segment in segments if isinstance(segment, DynamicSegment) for tag in segment.iter_tags()]
    except _ELF_DAMAGE as error:
        raise InputError("damaged ELF file", f"{name} ({error or type(error).__name__})") from None
    values = [
        (tag.entry.d_tag, str(getattr(tag, _TEXT_OF[tag.entry.d_tag]))) for tag in tags if tag.entry.d_tag in _TEXT_OF
    ]
    return SharedObject(
        name=name,
        soname=next((text for kind, text in values if kind == "DT_SONAME"), None),
        needed=tuple(text for kind, text in values if kind == "DT_NEEDED"),
        runpath=tuple(path for kind, text in values if kind in ("DT_RUNPATH", "DT_RPATH") for path in text.split(":")),
    )
