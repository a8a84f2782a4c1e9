"""A wheel file -> what it says about itself and what it holds; reads any wheel in the world."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from functools import cached_property
from pathlib import Path, PurePosixPath

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, NormalizedName, parse_wheel_filename
from packaging.version import Version

from wheelfactory.errors import InputError

RECORD_NAME = "wheelfactory.json"
"""The build record inside dist-info."""


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
            raise InputError("no such file", str(path))
        if not zipfile.is_zipfile(path):
            raise InputError("not a zip file", str(path), "the file is damaged or was not downloaded whole")
        return cls(path, name, version, build, tags)

    @property
    def platform_tags(self) -> tuple[str, ...]:
        """The platform tags in its name, such as ``manylinux_2_28_x86_64``."""
        return tuple(sorted({tag.platform for tag in self.tags}))

    @property
    def python_tags(self) -> tuple[str, ...]:
        """The python tags in its name, such as ``cp311``."""
        return tuple(sorted({tag.interpreter for tag in self.tags}))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Its members and their unpacked sizes in bytes."""
        with zipfile.ZipFile(self.path) as archive:
            return {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}

    @cached_property
    def dist_info(self) -> str:
        """The name of its dist-info folder. Raises `InputError` if it has none or several."""
        found = {PurePosixPath(name).parts[0] for name in self.sizes}
        found = {name for name in found if name.endswith(".dist-info")}
        if len(found) != 1:
            raise InputError(f"{len(found)} dist-info folders", self.path.name, "a wheel has exactly one")
        return found.pop()

    def read(self, member: str) -> bytes:
        """The bytes of a member. Raises `InputError` if it has none of that name."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(member)
        except KeyError:
            raise InputError("missing from the wheel", f"{member} in {self.path.name}") from None

    @cached_property
    def metadata_bytes(self) -> bytes:
        """METADATA as it stands in the wheel."""
        return self.read(f"{self.dist_info}/METADATA")

    @cached_property
    def metadata(self) -> Message:
        """METADATA, its headers parsed."""
        return Parser().parsestr(self.metadata_bytes.decode("utf-8"))

    @cached_property
    def wheel_tags(self) -> frozenset[str]:
        """The tags that the WHEEL file states."""
        headers = Parser().parsestr(self.read(f"{self.dist_info}/WHEEL").decode("utf-8"))
        return frozenset(headers.get_all("Tag", []))

    @cached_property
    def shared_objects(self) -> tuple[SharedObject, ...]:
        """Every ELF file it holds, whatever it is called."""
        with zipfile.ZipFile(self.path) as archive:
            found = [_read_elf(archive, name) for name in sorted(self.sizes)]
        return tuple(item for item in found if item)


_TEXT_OF = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RUNPATH": "runpath", "DT_RPATH": "rpath"}
"""The dynamic tags that hold a text, and what pyelftools calls it."""


def _read_elf(archive: zipfile.ZipFile, name: str) -> SharedObject | None:
    with archive.open(name) as file:
        if file.read(4) != b"\x7fELF":
            return None
    try:
        elf = ELFFile(io.BytesIO(archive.read(name)))
        tags = [
            tag for section in elf.iter_sections() if isinstance(section, DynamicSection) for tag in section.iter_tags()
        ]
    except ELFError as error:
        raise InputError("damaged ELF file", f"{name} ({error})") from None
    values = [
        (tag.entry.d_tag, str(getattr(tag, _TEXT_OF[tag.entry.d_tag]))) for tag in tags if tag.entry.d_tag in _TEXT_OF
    ]
    return SharedObject(
        name=name,
        soname=next((text for kind, text in values if kind == "DT_SONAME"), None),
        needed=tuple(text for kind, text in values if kind == "DT_NEEDED"),
        runpath=tuple(path for kind, text in values if kind in ("DT_RUNPATH", "DT_RPATH") for path in text.split(":")),
    )
