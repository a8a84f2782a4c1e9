"""A name -> what there is to know, without running it, about the wheel, library or installed distribution it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import InputError
from wheelfactory.core.installed import find_packages
from wheelfactory.core.label import Label
from wheelfactory.wheel.build_record import BuildRecord, parse_build_record, read_build_record
from wheelfactory.wheel.elf.image import MAGIC
from wheelfactory.wheel.elf.mangled import guess_provider
from wheelfactory.wheel.elf.offload import DeviceCode, sum_device_code
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel, read_elf_file

_WHAT = "name a wheel file, an ELF file, a .dist-info folder, or what is installed for the python3 on PATH"


@dataclass(frozen=True)
class ElfFacts:
    """What an ELF file says about loading it, and the device code in it."""

    name: str
    size: int
    """Bytes."""
    soname: str | None
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    glibc: str | None
    """The oldest it can be loaded with."""
    glibcxx: str | None
    code_for: str | None
    """The arch, if the file is itself a code object."""
    bundles: int
    registered: int
    """How many bundles the start-up code hands to the HIP runtime."""
    forms: tuple[str, ...]
    """How the bundles are packed: ``plain``, ``CCOB v3 zstd``."""
    device_code: Mapping[str, DeviceCode]
    """By target id, such as ``gfx90a:xnack-``."""
    undefined: Mapping[str, tuple[str, ...]]
    """Symbols by the library that their version names, or by what their name tells: ``torch (by name)``."""

    @classmethod
    def from_elf_file(cls, elf: ElfFile, size: int) -> ElfFacts:
        """The facts of a file of that many bytes."""
        groups: dict[str, list[str]] = {}
        for symbol in elf.undefined:
            groups.setdefault(symbol.library or f"{guess_provider(symbol.name)} (by name)", []).append(symbol.name)
        return cls(
            name=elf.name,
            size=size,
            soname=elf.soname,
            needed=elf.needed,
            runpath=elf.runpath,
            glibc=str(elf.glibc) if elf.glibc else None,
            glibcxx=str(elf.glibcxx) if elf.glibcxx else None,
            code_for=elf.code_for,
            bundles=len(elf.bundles),
            registered=elf.registered,
            forms=tuple(sorted({bundle.form for bundle in elf.bundles})),
            device_code=sum_device_code(elf.bundles),
            undefined={group: tuple(groups[group]) for group in sorted(groups)},
        )


@dataclass(frozen=True)
class DistributionFacts:
    """What METADATA, WHEEL and the build record say of a wheel or of what was installed from one."""

    name: str
    version: str
    label: Label | None
    tags: tuple[str, ...]
    requires_python: str
    requires_dist: tuple[str, ...]
    record: BuildRecord | None


@dataclass(frozen=True)
class Inspection:
    """A thing and what it holds; sizes in bytes."""

    file: str
    kind: str
    """``wheel``, ``file`` or ``installed``."""
    sha256: str | None
    """None for what is installed: it is many files."""
    size: int
    unpacked_size: int
    members: int
    distribution: DistributionFacts | None
    elf_files: tuple[ElfFacts, ...]

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON values."""
        values = asdict(self)
        if self.distribution:
            record = self.distribution.record
            label = self.distribution.label
            values["distribution"]["label"] = str(label) if label else None
            values["distribution"]["record"] = record.model_dump(mode="json") if record else None
        return values


def inspect(path: Path, environ: Mapping[str, str]) -> Inspection:
    """The facts of a wheel file, an ELF file, a ``.dist-info`` folder, or a distribution installed for ``python3``.

    The Python is the one on the PATH of `environ`. Raises `InputError` if it is none of these, or is damaged.
    """
    if path.suffix == ".whl":
        return _wheel(path)
    if path.suffix == ".dist-info" and path.is_dir():
        return _installed(path)
    if path.exists():
        return _file(path)
    if len(path.parts) > 1:
        raise InputError("no such file", str(path), _WHAT)
    return _installed(_find_installed(path.name, environ))


def _wheel(path: Path) -> Inspection:
    wheel = Wheel.open(path)
    tags = map(str, wheel.tags)
    return Inspection(
        file=path.name,
        kind="wheel",
        sha256=file_sha256(path),
        size=path.stat().st_size,
        unpacked_size=sum(wheel.sizes.values()),
        members=len(wheel.sizes),
        distribution=_distribution(str(wheel.name), str(wheel.version), tags, wheel.metadata, read_build_record(wheel)),
        elf_files=tuple(ElfFacts.from_elf_file(elf, wheel.sizes[elf.name]) for elf in wheel.elf_files),
    )


def _file(path: Path) -> Inspection:
    if path.is_dir():
        raise InputError("a folder", str(path), _WHAT)
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InputError("neither a wheel nor an ELF file", str(path), _WHAT)
        elf = read_elf_file(path.name, file)
    size = path.stat().st_size
    return Inspection(path.name, "file", file_sha256(path), size, size, 1, None, (ElfFacts.from_elf_file(elf, size),))


def _find_installed(name: str, environ: Mapping[str, str]) -> Path:
    try:
        found = next(find_packages(["python3"], environ).distributions(name), None)
    except InputError as error:
        raise InputError("no such file or installed distribution", f"{name} ({error})", _WHAT) from None
    files = (found.files or []) if found else []
    folder = next((Path(str(file.locate())).parent for file in files if file.name == "METADATA"), None)
    if folder is None:
        raise InputError("no such file or installed distribution", name, _WHAT)
    return folder


def _installed(folder: Path) -> Inspection:
    """The facts of what was installed: every file that RECORD lists and that is there."""
    metadata, wheel = _headers(folder / "METADATA"), _headers(folder / "WHEEL")
    name, kept = canonicalize_name(str(metadata["Name"] or "")), folder / BUILD_RECORD_NAME
    record = parse_build_record(kept.read_bytes(), str(kept)) if kept.is_file() else None
    tags = map(str, wheel.get_all("Tag", []))
    said = _distribution(name, str(metadata["Version"] or ""), tags, metadata, record)
    listed = {str(file): Path(str(file.locate())) for file in PathDistribution(folder).files or ()}
    files = {name: path for name, path in listed.items() if path.is_file()}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    elf_files = tuple(ElfFacts.from_elf_file(elf, sizes[elf.name]) for elf in _elf_files(files))
    total = sum(sizes.values())
    return Inspection(folder.name, "installed", None, total, total, len(files), said, elf_files)


def _headers(path: Path) -> Message:
    try:
        with path.open("rb") as file:
            return BytesHeaderParser().parse(file)
    except OSError as error:
        raise InputError("cannot read", f"{path} ({error.strerror})", _WHAT) from None


def _elf_files(files: Mapping[str, Path]) -> Iterator[ElfFile]:
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                yield read_elf_file(name, file)


def _distribution(
    name: str, version: str, tags: Iterable[str], metadata: Message, record: BuildRecord | None
) -> DistributionFacts:
    try:
        label = Label.parse(version.partition("+")[2])
    except InputError:
        label = None
    return DistributionFacts(
        name=name,
        version=version,
        label=label,
        tags=tuple(sorted(tags)),
        requires_python=str(metadata["Requires-Python"] or ""),
        requires_dist=tuple(str(item) for item in metadata.get_all("Requires-Dist", [])),
        record=record,
    )
