"""Derive the expected members of a wheel from the plain build of its pinned sources.

The changes from a plain build to a finished wheel are implemented here a second time, on purpose: a gate that called
`wheel.rewrite` would agree with its bugs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from wheelfactory.core.cell import Backend
from wheelfactory.core.label import Label
from wheelfactory.verify.gate import ProductSubject, Subject
from wheelfactory.wheel.activation.corrections import EXTENSION_MODULE, added_members, corrected_members
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel

# upstream's requirements that a finished wheel must not have. It pins torch to its minor instead; and ROCm's torch has
# its own Triton, which pip would overwrite with the CUDA one
_REPLACED = frozenset({"torch", "amd-aiter", "triton", "triton-rocm", "pytorch-triton-rocm"})

_REQUIRES = "Requires-Dist: "

_UNUSED_BY_AITER = ("Requires-Dist: psutil", "Requires-Dist: packaging")


@dataclass(frozen=True)
class ExpectedContents:
    """The members that a wheel must have; it may have no others."""

    members: Mapping[str, bytes]
    """The bytes of each member with known bytes, by name."""
    executables: frozenset[str]
    """The names of the members with execute permission."""
    unchecked: frozenset[str]
    """The names of members whose bytes other gates check: the extension, the build record and RECORD."""


def expected_from_plain(subject: ProductSubject) -> ExpectedContents:
    """Return the members of the plain build, unchanged. Raises `SourceError` or `BuildError` if it cannot be built."""
    plain, dist_info = subject.plain, subject.wheel.dist_info
    return ExpectedContents(_renamed(plain, dist_info), plain.executables, frozenset({f"{dist_info}/RECORD"}))


def expected_from_aiter(subject: ProductSubject) -> ExpectedContents:
    """Return the members of the plain build, corrected, with the version of matrix.yaml and for every platform.

    Raises `SourceError` or `BuildError` if the plain build cannot be built.
    """
    plain, dist_info, expected = subject.plain, subject.wheel.dist_info, expected_from_plain(subject)
    members = {**expected.members, **corrected_members(plain)}
    lines = plain.metadata_text.split("\n")
    changed = {f"Version: {plain.version}": f"Version: {subject.project.version}"}
    kept = [changed.get(line, line) for line in lines if line not in _UNUSED_BY_AITER]
    members[f"{dist_info}/METADATA"] = "\n".join(kept).encode()
    wheel = [line for line in members[f"{dist_info}/WHEEL"].decode().split("\n") if line and "Tag: " not in line]
    pure = "\n".join([*wheel, "Tag: py3-none-any", ""]).replace("Purelib: false", "Purelib: true")
    members[f"{dist_info}/WHEEL"] = pure.encode()
    return replace(expected, members=members)


def expected_from_cell(subject: Subject) -> ExpectedContents:
    """Return the members of the plain build, changed for a cell: label, torch pin, tags, corrections, added files.

    Raises `SourceError` or `BuildError` if the plain build cannot be built.
    """
    wheel, cell, label = subject.wheel, subject.cell, Label.from_cell(subject.cell)
    plain, dist_info = subject.plain, wheel.dist_info
    members = _renamed(plain, dist_info) | corrected_members(plain) | added_members(cell)
    executable, others = plain.executables, {f"{dist_info}/RECORD", f"{dist_info}/{BUILD_RECORD_NAME}"}
    members[f"{dist_info}/METADATA"] = _metadata(plain.metadata_text, f"{cell.public_version}+{label}", label).encode()
    build, wheel_file, top_level = subject.record.build, f"{dist_info}/WHEEL", f"{dist_info}/top_level.txt"
    if build and cell.backend is Backend.TRITON:
        members[wheel_file] = _tagged(members[wheel_file], ["py3-none-any"], build)
    if cell.backend is Backend.CK:
        name, tags = extension_name(subject), sorted(map(str, wheel.tags))
        executable, others = executable | {name}, others | {name}
        members[wheel_file] = _tagged(members[wheel_file], tags, build, "Root-Is-Purelib: false")
        packages = sorted([*members[top_level].decode().split(), EXTENSION_MODULE])
        members[top_level] = "".join(f"{package}\n" for package in packages).encode()
    return ExpectedContents(members, executable, frozenset(others))


def extension_name(subject: Subject) -> str:
    """Return the name of the one compiled file of a CK wheel, as the Python of the cell expects it."""
    return f"{EXTENSION_MODULE}.cpython-{subject.cell.python_tag.removeprefix('cp')}-x86_64-linux-gnu.so"


def _renamed(plain: Wheel, dist_info: str) -> dict[str, bytes]:
    """Return the members of a plain wheel without RECORD, with the dist-info folder renamed."""
    own = f"{plain.dist_info}/"
    members = ((info.filename, data) for info, data in plain.read_members(plain.sizes.keys() - {f"{own}RECORD"}))
    return {f"{dist_info}/{name.removeprefix(own)}" if name.startswith(own) else name: data for name, data in members}


def _metadata(plain: str, version: str, label: Label) -> str:
    """Return METADATA with the labelled version, and the pin on torch after the other requirements."""
    head, blank, description = plain.partition("\n\n")
    kept = [line for line in head.split("\n") if not _is_replaced(line)]
    version_at = [line.startswith("Version: ") for line in kept].index(True)
    kept[version_at] = f"Version: {version}"
    last = max((at for at, line in enumerate(kept) if line.startswith(_REQUIRES)), default=len(kept) - 1)
    products = (f"{_REQUIRES}{name}>=0.0" for name in label.requires)
    kept[last + 1 : last + 1] = [*products, f"{_REQUIRES}{label.torch_pin}"]
    return "\n".join(kept) + blank + description


def _is_replaced(line: str) -> bool:
    name = re.match("[A-Za-z0-9._-]*", line.removeprefix(_REQUIRES))
    return line.startswith(_REQUIRES) and name is not None and canonicalize_name(name[0]) in _REPLACED


def _tagged(plain: bytes, tags: list[str], build: str | None, purelib: str = "Root-Is-Purelib: true") -> bytes:
    """Return the text of WHEEL with these tags."""
    kept = [line for line in plain.decode().split("\n") if line and not line.startswith(("Tag: ", "Root-Is-Purelib: "))]
    builds = [f"Build: {build}"] * bool(build)
    return "\n".join([*kept, purelib, *builds, *(f"Tag: {tag}" for tag in tags), ""]).encode()
