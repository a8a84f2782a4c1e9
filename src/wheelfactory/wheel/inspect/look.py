"""A name -> the wheel, library or installed distribution of that name, and its facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import BytesHeaderParser
from importlib.metadata import PathDistribution
from pathlib import Path

from packaging.utils import canonicalize_name

from wheelfactory.core.digest import sha256_of
from wheelfactory.core.errors import InputError
from wheelfactory.core.installed import find_packages
from wheelfactory.core.label import Label
from wheelfactory.wheel.elf.image import MAGIC
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.inspect.facts import Distribution, ElfFacts, Facts
from wheelfactory.wheel.read import RECORD_NAME, Wheel, read_elf_file
from wheelfactory.wheel.record import parse_record, read_record

_WHAT = "name a wheel file, an ELF file, a .dist-info folder, or what is installed for the python3 on PATH"


def inspect(path: Path, environ: Mapping[str, str]) -> Facts:
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


def _wheel(path: Path) -> Facts:
    wheel = Wheel.open(path)
    said = Distribution(
        name=str(wheel.name),
        version=str(wheel.version),
        label=_label(wheel.version.local or ""),
        tags=tuple(sorted(map(str, wheel.tags))),
        requires_python=str(wheel.metadata["Requires-Python"] or ""),
        requires_dist=tuple(str(item) for item in wheel.metadata.get_all("Requires-Dist", [])),
        record=read_record(wheel),
    )
    return Facts(
        file=path.name,
        kind="wheel",
        sha256=sha256_of(path),
        size=path.stat().st_size,
        unpacked_size=sum(wheel.sizes.values()),
        members=len(wheel.sizes),
        distribution=said,
        elf_files=tuple(ElfFacts.of(elf, wheel.sizes[elf.name]) for elf in wheel.elf_files),
    )


def _file(path: Path) -> Facts:
    if path.is_dir():
        raise InputError("a folder", str(path), _WHAT)
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InputError("neither a wheel nor an ELF file", str(path), _WHAT)
        elf = read_elf_file(path.name, file)
    size = path.stat().st_size
    return Facts(path.name, "file", sha256_of(path), size, size, 1, None, (ElfFacts.of(elf, size),))


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


def _installed(folder: Path) -> Facts:
    """The facts of what was installed: every file that RECORD lists and that is there."""
    metadata, wheel = _headers(folder / "METADATA"), _headers(folder / "WHEEL")
    version, kept = str(metadata["Version"] or ""), folder / RECORD_NAME
    said = Distribution(
        name=canonicalize_name(str(metadata["Name"] or "")),
        version=version,
        label=_label(version.partition("+")[2]),
        tags=tuple(sorted(map(str, wheel.get_all("Tag", [])))),
        requires_python=str(metadata["Requires-Python"] or ""),
        requires_dist=tuple(str(item) for item in metadata.get_all("Requires-Dist", [])),
        record=parse_record(kept.read_bytes(), str(kept)) if kept.is_file() else None,
    )
    files = dict(_recorded(folder))
    sizes = {name: path.stat().st_size for name, path in files.items()}
    elf_files = tuple(ElfFacts.of(elf, sizes[elf.name]) for elf in _elf_files(files))
    total = sum(sizes.values())
    return Facts(folder.name, "installed", None, total, total, len(files), said, elf_files)


def _headers(path: Path) -> Message:
    try:
        with path.open("rb") as file:
            return BytesHeaderParser().parse(file)
    except OSError as error:
        raise InputError("cannot read", f"{path} ({error.strerror})", _WHAT) from None


def _recorded(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in PathDistribution(folder).files or ():
        path = Path(str(file.locate()))
        if path.is_file():
            yield str(file), path


def _elf_files(files: Mapping[str, Path]) -> Iterator[ElfFile]:
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                yield read_elf_file(name, file)


def _label(local: str) -> Label | None:
    try:
        return Label.parse(local)
    except InputError:
        return None
