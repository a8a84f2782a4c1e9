"""What there is to know about a wheel, a library or an installed distribution without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wheelfactory.core.label import Label
from wheelfactory.wheel.elf.mangled import provider
from wheelfactory.wheel.elf.offload import DeviceCode, device_code
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.record import BuildRecord


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
    def of(cls, elf: ElfFile, size: int) -> ElfFacts:
        """The facts of a file of that many bytes."""
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
            device_code=device_code(elf.bundles),
            undefined=_undefined(elf),
        )


def _undefined(elf: ElfFile) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for symbol in elf.undefined:
        groups.setdefault(symbol.library or f"{provider(symbol.name)} (by name)", []).append(symbol.name)
    return {group: tuple(groups[group]) for group in sorted(groups)}


@dataclass(frozen=True)
class Distribution:
    """What METADATA, WHEEL and the build record say of a wheel or of what was installed from one."""

    name: str
    version: str
    label: Label | None
    tags: tuple[str, ...]
    requires_python: str
    requires_dist: tuple[str, ...]
    record: BuildRecord | None


@dataclass(frozen=True)
class Facts:
    """A thing and what it holds; sizes in bytes."""

    file: str
    kind: str
    """``wheel``, ``file`` or ``installed``."""
    sha256: str | None
    """None for what is installed: it is many files."""
    size: int
    unpacked_size: int
    members: int
    distribution: Distribution | None
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
