"""Render the facts of an inspection as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wheelfactory.core.wrap import count_text
from wheelfactory.wheel.build_record import BuildRecord
from wheelfactory.wheel.elf.offload import DeviceCode, sum_device_code
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.inspect.facts import DistributionFacts, Inspection, device_code_forms, group_symbols


def describe(facts: Inspection) -> Iterator[str]:
    """Render the facts as lines; symbols are only counted, `Inspection.as_json` lists them."""
    yield facts.file
    if facts.sha256:
        yield f"  sha256    {facts.sha256}"
    files = "" if facts.kind == "file" else f", {facts.unpacked_size:,} unpacked in {facts.members} files"
    yield f"  size      {facts.size:,} bytes{files}"
    if facts.distribution:
        yield from _distribution_lines(facts.distribution)
    for elf in facts.elf_files:
        yield from _elf_lines(elf)
    if facts.distribution:
        yield from _record_lines(facts.distribution.record)


def _distribution_lines(distribution: DistributionFacts) -> Iterator[str]:
    label = distribution.label
    yield f"  version   {distribution.version}"
    if distribution.renamed:
        yield f"  renamed   METADATA says {distribution.renamed}, so pip refuses this file"
    if label:
        yield f"  label     {label.describe(str(label.backend))}"
    else:
        yield "  label     none (not a label of this factory)"
    yield f"  tags      {', '.join(distribution.tags)}"
    yield f"  python    {distribution.requires_python or 'any'}"
    yield f"  requires  {', '.join(distribution.requires_dist) or 'nothing'}"


def _elf_lines(elf: ElfFile) -> Iterator[str]:
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
        groups = group_symbols(elf)
        counts = ", ".join(f"{group} {len(names)}" for group, names in groups.items())
        yield f"    symbols {sum(map(len, groups.values()))} undefined: {counts}"
    yield from _device_lines(elf)


def _device_lines(elf: ElfFile) -> Iterator[str]:
    forms = f" ({', '.join(found)})" if (found := device_code_forms(elf)) else ""
    bundles, registered, packages = len(elf.bundles), len(elf.registration.bundles), len(elf.packages)
    if bundles or registered:
        others = "" if registered == bundles else f", {registered} registered"
        yield f"    device  {count_text(bundles, 'bundle')}{forms}{others}"
        yield from _code_lines(elf.device_code)
    if packages or elf.relocatable_kernels:
        waiting = f"{count_text(packages, 'package')}{forms if packages else ''}"
        yield f"    device  {waiting}, {count_text(elf.relocatable_kernels, 'kernel')} for a device link"
        yield from _code_lines(sum_device_code(elf.packages))


def _code_lines(found: Mapping[str, DeviceCode]) -> Iterator[str]:
    width = max(map(len, found), default=0)
    for target, code in found.items():
        objects = "object " if code.objects == 1 else "objects"
        yield f"      {target:<{width}} {code.objects:>5} {objects} {code.size:>13,} bytes"


def _record_lines(record: BuildRecord | None) -> Iterator[str]:
    if record is None:
        yield "  record    none (not a finished wheel of this factory)"
        return
    yield f"  record    cell {record.cell}"
    yield f"    archs     {', '.join(record.offload_archs)}"
    yield f"    source    {record.source}"
    for name, value in record.toolchain.model_dump().items():
        if value is not None:
            yield f"    {name:<9} {value}"
