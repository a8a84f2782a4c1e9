"""What the members of a wheel must be: those of the plain build of its pinned sources, and what is declared here.

What a finished wheel has other than a plain build is written a second time here, apart from the code that finishes
wheels (`wheel.rewrite`, `wheel.metadata`): a gate that called that code would agree with its mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from wheelfactory.core.cell import Backend
from wheelfactory.core.label import Label
from wheelfactory.verify.gate import FallbackSubject, Subject
from wheelfactory.wheel.activation.members import EXTENSION_MODULE, added_members
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel

_REPLACED = frozenset({"torch", "triton", "triton-rocm", "pytorch-triton-rocm"})
"""Requirements of upstream that a finished wheel must not have: it pins torch to its minor, and ROCm's torch brings its
own Triton, over which pip would put the CUDA one."""

_REQUIRES = "Requires-Dist: "


@dataclass(frozen=True)
class ExpectedContents:
    """All that a wheel may hold."""

    members: Mapping[str, bytes]
    """Those whose bytes are known, by name."""
    executables: frozenset[str]
    """The names of those that are programs."""
    unchecked: frozenset[str]
    """The names of those whose bytes other gates look at: the extension, the build record and RECORD."""


def expected_from_fallback(subject: FallbackSubject) -> ExpectedContents:
    """The plain build itself."""
    plain, dist_info = subject.plain.make_fallback_wheel(subject.project), subject.wheel.dist_info
    return ExpectedContents(_renamed(plain, dist_info), plain.executables, frozenset({f"{dist_info}/RECORD"}))


def expected_from_cell(subject: Subject) -> ExpectedContents:
    """The plain build with the label, pin and tags of a cell, the module that activates Triton or else the extension.

    Raises `SourceError` or `BuildError` if there is no plain build and none can be made.
    """
    wheel, cell, label = subject.wheel, subject.cell, subject.matrix.label(subject.cell)
    plain = subject.plain.make_flash_attn_wheel(cell.flash_attn, subject.matrix.flash_attn[cell.flash_attn])
    of = wheel.dist_info
    members = _renamed(plain, of)
    executable, others = plain.executables, {f"{of}/RECORD", f"{of}/{BUILD_RECORD_NAME}"}
    members[f"{of}/METADATA"] = _metadata(plain.metadata_text, f"{cell.flash_attn}+{label}", label).encode()
    if cell.backend is Backend.TRITON:
        members |= added_members(Backend.TRITON)
    else:
        name = extension_name(subject)
        executable, others = executable | {name}, others | {name}
        members[f"{of}/WHEEL"] = _compiled(members[f"{of}/WHEEL"], sorted(map(str, wheel.tags)))
        packages = members[f"{of}/top_level.txt"].decode().split()
        members[f"{of}/top_level.txt"] = "".join(f"{name}\n" for name in sorted([*packages, EXTENSION_MODULE])).encode()
    return ExpectedContents(members, executable, frozenset(others))


def extension_name(subject: Subject) -> str:
    """The one compiled file of a CK wheel, named so that the Python of the cell finds it."""
    return f"{EXTENSION_MODULE}.cpython-{subject.cell.python_tag.removeprefix('cp')}-x86_64-linux-gnu.so"


def _renamed(plain: Wheel, dist_info: str) -> dict[str, bytes]:
    """The members of a plain wheel but its RECORD, with another name of the dist-info folder."""
    own = f"{plain.dist_info}/"
    members = ((info.filename, data) for info, data in plain.read_members(plain.sizes.keys() - {f"{own}RECORD"}))
    return {f"{dist_info}/{name.removeprefix(own)}" if name.startswith(own) else name: data for name, data in members}


def _metadata(plain: str, version: str, label: Label) -> str:
    """METADATA with the labelled version, and the pin on torch behind the other requirements."""
    head, blank, description = plain.partition("\n\n")
    kept = [line for line in head.split("\n") if not _is_replaced(line)]
    version_at = [line.startswith("Version: ") for line in kept].index(True)
    kept[version_at] = f"Version: {version}"
    last = max((at for at, line in enumerate(kept) if line.startswith(_REQUIRES)), default=len(kept) - 1)
    kept.insert(last + 1, f"{_REQUIRES}{label.torch_pin}")
    return "\n".join(kept) + blank + description


def _is_replaced(line: str) -> bool:
    name = re.match("[A-Za-z0-9._-]*", line.removeprefix(_REQUIRES))
    return line.startswith(_REQUIRES) and name is not None and canonicalize_name(name[0]) in _REPLACED


def _compiled(plain: bytes, tags: list[str]) -> bytes:
    """WHEEL of a wheel with compiled code, for these tags."""
    kept = [line for line in plain.decode().split("\n") if line and not line.startswith(("Tag: ", "Root-Is-Purelib: "))]
    return "\n".join([*kept, "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags), ""]).encode()
