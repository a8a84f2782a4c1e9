"""Inspect a wheel, a library or an installed distribution without running its code, and describe it as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, canonicalize_version

from wheelfactory.core.cell import local_version
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import file_sha256
from wheelfactory.core.label import Label
from wheelfactory.core.query import Interpreter
from wheelfactory.core.wrap import count_text
from wheelfactory.wheel.elf.image import MAGIC
from wheelfactory.wheel.elf.mangled import guess_provider
from wheelfactory.wheel.elf.offload import DeviceCode, sum_device_code
from wheelfactory.wheel.elf.read import ElfFile, read_elf
from wheelfactory.wheel.read import (
    BUILD_RECORD_NAME,
    BuildRecord,
    Wheel,
    parse_build_record,
    read_build_record,
    read_mapped,
)

_HINT = "give a wheel file, an ELF file, a .dist-info folder, or a distribution installed for the python3 on PATH"


def group_symbols(elf: ElfFile) -> dict[str, tuple[str, ...]]:
    """Return the undefined symbols by the library in their version, or by a guess: ``torch (by name)``."""
    groups: dict[str, list[str]] = {}
    for symbol in elf.undefined:
        groups.setdefault(symbol.library or f"{guess_provider(symbol.name)} (by name)", []).append(symbol.name)
    return {group: tuple(groups[group]) for group in sorted(groups)}


def device_code_forms(elf: ElfFile) -> list[str]:
    """Return the formats of bundles and packages: ``plain``, ``CCOB v3 zstd``, ``package v1``."""
    return sorted({bundle.form for bundle in (*elf.bundles, *elf.packages)})


@dataclass(frozen=True)
class DistributionFacts:
    """The metadata of a wheel or an installed distribution."""

    name: str
    version: str
    label: Label | None
    tags: tuple[str, ...]
    requires_python: str
    requires_dist: tuple[str, ...]
    record: BuildRecord | None
    renamed: str = ""
    """Name and version in METADATA, if those in the file name are others."""


@dataclass(frozen=True)
class Inspection:
    """The facts of a wheel, a file or an installed distribution; sizes in bytes."""

    file: str
    kind: str
    """``wheel``, ``file`` or ``installed``."""
    sha256: str | None
    """None for an installed distribution, which is many files."""
    size: int
    unpacked_size: int
    members: int
    distribution: DistributionFacts | None
    elf_files: tuple[ElfFile, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        found = self.distribution
        distribution = found and {
            **vars(found),
            "label": str(found.label) if found.label else None,
            "record": found.record.model_dump(mode="json") if found.record else None,
        }
        return {**vars(self), "distribution": distribution, "elf_files": list(map(_elf_as_json, self.elf_files))}


def _elf_as_json(elf: ElfFile) -> dict[str, Any]:
    """Return what an ELF file tells the loader, its symbols and its device code by target; sizes in bytes."""
    return {
        **{name: getattr(elf, name) for name in ("name", "size", "soname", "needed", "runpath", "code_for")},
        "glibc": elf.glibc and str(elf.glibc),
        "glibcxx": elf.glibcxx and str(elf.glibcxx),
        "bundles": len(elf.bundles),
        "registered": len(elf.registration.bundles),
        "packages": len(elf.packages),
        "relocatable_kernels": elf.relocatable_kernels,
        "forms": device_code_forms(elf),
        "device_code": {target: asdict(code) for target, code in elf.device_code.items()},
        "packaged_code": {target: asdict(code) for target, code in sum_device_code(elf.packages).items()},
        "undefined": group_symbols(elf),
    }


def inspect(path: Path, environ: Mapping[str, str]) -> Inspection:
    """Inspect a wheel file, an ELF file, a ``.dist-info`` folder, or a distribution name.

    A distribution is looked up in the ``python3`` on the PATH of `environ`. Raises `InputError` if `path` is none of
    these, or if it is damaged.
    """
    if path.suffix == ".whl":
        return _inspect_wheel(path)
    if path.suffix == ".dist-info" and path.is_dir():
        return _inspect_installed(path)
    if path.exists():
        return _inspect_file(path)
    if len(path.parts) > 1:
        raise InputError("no such file", str(path), _HINT)
    return _inspect_installed(_find_installed(path.name, environ))


def _inspect_wheel(path: Path) -> Inspection:
    wheel = Wheel.open(path)
    name, version, tags = str(wheel.name), str(wheel.version), map(str, wheel.tags)
    distribution = _read_distribution(name, version, tags, wheel.metadata, read_build_record(wheel))
    sha256, size, sizes = file_sha256(path), path.stat().st_size, wheel.sizes.values()
    return Inspection(path.name, "wheel", sha256, size, sum(sizes), len(sizes), distribution, wheel.elf_files)


def _inspect_file(path: Path) -> Inspection:
    if path.is_dir():
        raise InputError("a folder, not a file", str(path), _HINT)
    size, elf_files = path.stat().st_size, tuple(_read_elf_files({path.name: path}))
    if not elf_files:
        raise InputError("neither a wheel nor an ELF file", str(path), _HINT)
    return Inspection(path.name, "file", file_sha256(path), size, size, 1, None, elf_files)


def _find_installed(name: str, environ: Mapping[str, str]) -> Path:
    try:
        found = next(Interpreter(["python3"], environ).find_packages().distributions(name), None)
    except InputError as error:
        raise InputError("no such file or installed distribution", f"{name} ({error})", _HINT) from None
    files = (found.files or []) if found else []
    folder = next((Path(str(file.locate())).parent for file in files if file.name == "METADATA"), None)
    if folder is None:
        raise InputError("no such file or installed distribution", name, _HINT)
    return folder


def _inspect_installed(folder: Path) -> Inspection:
    """Inspect an installed distribution: every existing file that its RECORD lists."""
    metadata, wheel = _read_headers(folder / "METADATA"), _read_headers(folder / "WHEEL")
    name, kept = canonicalize_name(str(metadata["Name"] or "")), folder / BUILD_RECORD_NAME
    record = parse_build_record(kept.read_bytes(), str(kept)) if kept.is_file() else None
    tags = map(str, wheel.get_all("Tag", []))
    distribution = _read_distribution(name, str(metadata["Version"] or ""), tags, metadata, record)
    listed = {str(file): Path(str(file.locate())) for file in PathDistribution(folder).files or ()}
    files = {name: path for name, path in listed.items() if path.is_file()}
    total = sum(path.stat().st_size for path in files.values())
    elf_files = tuple(_read_elf_files(files))
    return Inspection(folder.name, "installed", None, total, total, len(files), distribution, elf_files)


def _read_headers(path: Path) -> Message:
    try:
        with path.open("rb") as file:
            return BytesHeaderParser().parse(file)
    except OSError as error:
        raise InputError("cannot read", f"{path} ({error.strerror})", _HINT) from None


def _read_elf_files(files: Mapping[str, Path]) -> Iterator[ElfFile]:
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                yield read_mapped(name, file, read_elf)


def _read_distribution(
    name: str, version: str, tags: Iterable[str], metadata: Message, record: BuildRecord | None
) -> DistributionFacts:
    try:
        label = Label.parse(local_version(version))
    except InputError:
        label = None
    given, own = str(metadata["Version"] or version), canonicalize_name(str(metadata["Name"] or name))
    is_renamed = (own, canonicalize_version(given)) != (name, canonicalize_version(version))
    return DistributionFacts(
        name=name,
        version=version,
        label=label,
        tags=tuple(sorted(tags)),
        requires_python=str(metadata["Requires-Python"] or ""),
        requires_dist=tuple(str(item) for item in metadata.get_all("Requires-Dist", [])),
        record=record,
        renamed=f"{own} {given}" * is_renamed,
    )


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
