"""A wheel -> its facts, for a person and for a program; any wheel, not only those made here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheelfactory.elf import ElfFile
from wheelfactory.errors import InputError
from wheelfactory.files import sha256_of
from wheelfactory.label import Label
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import BuildRecord, read_record


@dataclass(frozen=True)
class WheelFacts:
    """What there is to know about a wheel without running it; sizes in bytes."""

    file: str
    sha256: str
    size: int
    unpacked_size: int
    members: int
    name: str
    version: str
    label: Label | None
    tags: tuple[str, ...]
    requires_python: str
    requires_dist: tuple[str, ...]
    elf_files: tuple[ElfFile, ...]
    record: BuildRecord | None

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON values."""
        record = self.record.model_dump(mode="json") if self.record else None
        return {**asdict(self), "label": str(self.label) if self.label else None, "record": record}


def inspect_wheel(path: Path) -> WheelFacts:
    """The facts of a wheel. Raises `InputError` if it is none."""
    wheel = Wheel.open(path)
    return WheelFacts(
        file=path.name,
        sha256=sha256_of(path),
        size=path.stat().st_size,
        unpacked_size=sum(wheel.sizes.values()),
        members=len(wheel.sizes),
        name=str(wheel.name),
        version=str(wheel.version),
        label=_label(wheel.version.local or ""),
        tags=tuple(sorted(map(str, wheel.tags))),
        requires_python=str(wheel.metadata["Requires-Python"] or ""),
        requires_dist=tuple(str(item) for item in wheel.metadata.get_all("Requires-Dist", [])),
        elf_files=wheel.elf_files,
        record=read_record(wheel),
    )


def _label(local: str) -> Label | None:
    try:
        return Label.parse(local)
    except InputError:
        return None


def describe(facts: WheelFacts) -> list[str]:
    """The facts as lines."""
    label = facts.label
    lines = [
        facts.file,
        f"  sha256    {facts.sha256}",
        f"  size      {facts.size:,} bytes, {facts.unpacked_size:,} unpacked in {facts.members} members",
        f"  version   {facts.version}",
        f"  label     ROCm {'.'.join(map(str, label.rocm))}, torch {'.'.join(map(str, label.torch))}, {label.backend}"
        if label
        else "  label     none of this factory",
        f"  tags      {', '.join(facts.tags)}",
        f"  python    {facts.requires_python or 'any'}",
        f"  requires  {', '.join(facts.requires_dist) or 'nothing'}",
    ]
    for item in facts.elf_files:
        lines.append(f"  ELF       {item.name}")
        lines.append(f"    needs   {', '.join(item.needed) or 'nothing'}")
        lines.append(f"    runpath {':'.join(item.runpath) or 'none'}")
    return lines + _record_lines(facts.record)


def _record_lines(record: BuildRecord | None) -> list[str]:
    if record is None:
        return ["  record    none: not a finished wheel of this factory"]
    tools = {name: value for name, value in record.toolchain.model_dump().items() if value is not None}
    return [
        f"  record    cell {record.cell}",
        f"    archs     {', '.join(record.offload_archs)}",
        f"    source    {record.source}",
        *(f"    {name:<9} {value}" for name, value in tools.items()),
    ]
