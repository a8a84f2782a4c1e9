"""A wheel with compiled code -> its light twin: all that auditwheel looks at, in a fraction of the bytes."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from wheelfactory.core.errors import InputError, VerificationError
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.elf.image import Buffer, DamagedElfError
from wheelfactory.wheel.light import lighten
from wheelfactory.wheel.read import Wheel, map_elf_member
from wheelfactory.wheel.rewrite import record_bytes

_PLATFORM = re.compile(r"(?:linux|manylinux(?:1|2010|2014|_\d+_\d+))_(x86_64|aarch64)")
_CHUNK = 1 << 20


def write_twin(raw: Path, folder: Path) -> Path | None:
    """Write the twin of a wheel into `folder` and give its path; None if the wheel holds no ELF file.

    It has the wheel's name, but for the platform tag, which says no more than the architecture, and of its members
    METADATA, WHEEL and the ELF files, without their device code (`light.lighten`). RECORD lists them without
    hashes: nobody installs it. ELF files are unpacked one after the other, to files without a name.

    Raises `InputError` if `raw` is no wheel or has a damaged ELF file, `VerificationError` if it has ELF files and is
    not tagged for one architecture of Linux.
    """
    wheel = Wheel.open(raw)
    names = []
    path = folder / "twin.whl"
    with open_archive(raw) as archive, zipfile.ZipFile(path, "w") as twin:
        for name in sorted(wheel.sizes):
            light = _light_member(archive, name)
            if light is not None:
                _add(twin, name, light)
                names.append(name)
        if not names:
            return None
        for name in (f"{wheel.dist_info}/{text}" for text in ("METADATA", "WHEEL")):
            _add(twin, name, wheel.read(name))
            names.append(name)
        record = f"{wheel.dist_info}/RECORD"
        _add(twin, record, record_bytes([name, "", ""] for name in [*names, record]))
    return path.rename(folder / f"{raw.name.rpartition('-')[0]}-linux_{architecture(wheel)}.whl")


def _light_member(archive: zipfile.ZipFile, name: str) -> Buffer | None:
    data = map_elf_member(archive, name)
    try:
        return None if data is None else lighten(data)
    except DamagedElfError as error:
        raise InputError("damaged ELF file", f"{name} ({error})", "build it again") from None


def _add(archive: zipfile.ZipFile, name: str, data: Buffer) -> None:
    view = memoryview(data)
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o100755 << 16
    info.file_size = len(view)  # zipfile decides by it whether the member needs ZIP64
    with archive.open(info, "w") as member:
        for start in range(0, len(view), _CHUNK):
            member.write(view[start : start + _CHUNK])


def architecture(wheel: Wheel) -> str:
    """The architecture that a wheel is tagged for. Raises `VerificationError` if that is not one of Linux alone."""
    found = {match[1] if (match := _PLATFORM.fullmatch(tag)) else None for tag in wheel.platform_tags}
    one = found.pop()
    if found or one is None:
        raise VerificationError(
            "not tagged for one Linux",
            f"{wheel.path.name}: expected linux_x86_64 or linux_aarch64, found {', '.join(wheel.platform_tags)}",
            "it holds compiled code: build it with setup.py on the machine it is for",
        )
    return one
