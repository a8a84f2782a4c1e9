"""Facts -> lines for a person."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.wheel.build_record import BuildRecord
from wheelfactory.wheel.inspect.facts import DistributionFacts, ElfFacts, Inspection


def describe(facts: Inspection) -> Iterator[str]:
    """The facts as lines; what a program wants in full, such as symbols, is counted."""
    yield facts.file
    if facts.sha256:
        yield f"  sha256    {facts.sha256}"
    files = "" if facts.kind == "file" else f", {facts.unpacked_size:,} unpacked in {facts.members} files"
    yield f"  size      {facts.size:,} bytes{files}"
    if facts.distribution:
        yield from _distribution(facts.distribution)
    for elf in facts.elf_files:
        yield from _elf(elf)
    if facts.distribution:
        yield from _record(facts.distribution.record)


def _distribution(said: DistributionFacts) -> Iterator[str]:
    label = said.label
    yield f"  version   {said.version}"
    if label:
        yield f"  label     ROCm {label.rocm_version}, torch {label.torch_version}, {label.backend}"
    else:
        yield "  label     none of this factory"
    yield f"  tags      {', '.join(said.tags)}"
    yield f"  python    {said.requires_python or 'any'}"
    yield f"  requires  {', '.join(said.requires_dist) or 'nothing'}"


def _elf(elf: ElfFacts) -> Iterator[str]:
    yield f"  ELF       {elf.name} ({elf.size:,} bytes)"
    if elf.code_for:
        yield f"    code    object for {elf.code_for}"
        return
    if elf.soname:
        yield f"    soname  {elf.soname}"
    yield f"    needs   {', '.join(elf.needed) or 'nothing'}"
    yield f"    runpath {':'.join(elf.runpath) or 'none'}"
    yield f"    glibc   {elf.glibc or 'any'}" + (f", GLIBCXX {elf.glibcxx}" if elf.glibcxx else "")
    if elf.undefined:
        counts = ", ".join(f"{group} {len(names)}" for group, names in elf.undefined.items())
        yield f"    symbols {sum(map(len, elf.undefined.values()))} undefined: {counts}"
    yield from _device(elf)


def _device(elf: ElfFacts) -> Iterator[str]:
    if not elf.bundles and not elf.registered:
        return
    forms = f" ({', '.join(elf.forms)})" if elf.forms else ""
    odd = "" if elf.registered == elf.bundles else f", {elf.registered} registered"
    yield f"    device  {elf.bundles} {'bundle' if elf.bundles == 1 else 'bundles'}{forms}{odd}"
    width = max(map(len, elf.device_code), default=0)
    for target, code in elf.device_code.items():
        objects = "object " if code.objects == 1 else "objects"
        yield f"      {target:<{width}} {code.objects:>5} {objects} {code.size:>13,} bytes"


def _record(record: BuildRecord | None) -> Iterator[str]:
    if record is None:
        yield "  record    none: not a finished wheel of this factory"
        return
    yield f"  record    cell {record.cell}"
    yield f"    archs     {', '.join(record.offload_archs)}"
    yield f"    source    {record.source}"
    for name, value in record.toolchain.model_dump().items():
        if value is not None:
            yield f"    {name:<9} {value}"
