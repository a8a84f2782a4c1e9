"""Build wheels for tests: with a valid RECORD, finished for a cell, or tampered with."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.tags import parse_tag

from elf_factory import hip_bundle, library, section
from wheelfactory.build.products import plain_folder
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.core.label import Label
from wheelfactory.matrix.facts import Build, Context, Matrix
from wheelfactory.wheel.corrections import added_members
from wheelfactory.wheel.read import BUILD_RECORD_NAME, BuildRecord, Toolchain

CK = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-cp311-ck")
TRITON = Cell.parse("fa2.8.3-rocm7.2-torch2.13.0-py3-triton")

DATE = (2025, 8, 14, 9, 30, 0)

PACKAGE: Mapping[str, bytes] = {
    "flash_attn/__init__.py": b"",
    "flash_attn/flash_attn_interface.py": b"def flash_attn_func() -> None: ...\n",
}
"""The smallest package that the import gate accepts as flash_attn."""

_SOURCE = "written for the tests"
_IMAGE = {
    "python-path": "/opt/venv/bin/python",
    "rocm-path": "/opt/rocm",
    "source": _SOURCE,
    "tag": "rocm/pytorch:6",
    "distribution": "ubuntu22.04",
    "glibc": "2.35",
    "python": "3.11",
}
_BAND = "1 kB to 10 MB"
_ARCHS = ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"]
_TORCH_OF = {"7.2": ["2.13.0", "2.9.1"], "6.4": ["2.13.0", "2.9.1"], "6.2.4": ["2.13.0"], "6.2": ["2.9.1"]}

MATRIX = Matrix.model_validate(
    {
        "backend": ["ck", "triton"],
        "python": ["3.12", "3.11"],
        "flash-attn": {
            "2.8.3": {
                "sdist": {"file": "flash_attn-2.8.3.tar.gz", "sha256": "a" * 64},
                "python": ">=3.9",
                "ck": {"wheel-size": _BAND, "archs": ["gfx90a", "gfx942", "gfx950"], "source": _SOURCE},
                "triton": {
                    "wheel-size": _BAND,
                    "archs": ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100"],
                    "window": ">=3.2.0,<3.9",
                    "source": _SOURCE,
                },
                "source": _SOURCE,
            },
            "2.6.3": {
                "git": {"repository": "https://example.org/flash-attention", "tag": "v2.6.3"},
                "python": ">=3.8",
                "ck": {"wheel-size": _BAND, "archs": ["gfx90a", "gfx942"], "source": _SOURCE},
                "source": _SOURCE,
            },
        },
        "torch": {
            version: {
                "python": ["3.12", "3.11"],
                "triton": triton,
                "triton-package": "triton-rocm",
                "cxx11-abi": True,
                "platform": "manylinux_2_28_x86_64",
                "source": _SOURCE,
            }
            for version, triton in {"2.13.0": "3.7.1", "2.9.1": "3.5.1"}.items()
        },
        "rocm": {
            version: {
                "torch": torch,
                "index": f"https://example.org/rocm{version}",
                "archs": _ARCHS if version < "7" else [*_ARCHS, "gfx950"],
                "images": [{**_IMAGE, "torch": "2.9.1"}],
                "source": _SOURCE,
            }
            for version, torch in _TORCH_OF.items()
        },
    }
)
"""A small matrix with both cells."""


def second_build(matrix: Matrix) -> Matrix:
    """The matrix with build 2 of every release."""
    build = Build(number="2", reason="wrong numbers")
    releases = {version: release.model_copy(update={"build": build}) for version, release in matrix.flash_attn.items()}
    return matrix.model_copy(update={"flash_attn": releases})


def make_wheel(
    folder: Path,
    *,
    name: str = "flash_attn",
    version: str = "2.8.3",
    tags: str = "py3-none-any",
    metadata: str | None = None,
    wheel: str | None = None,
    members: Mapping[str, bytes] = PACKAGE,
    dist_info_members: Mapping[str, bytes] | None = None,
    executable: Collection[str] = (),
    date_time: tuple[int, int, int, int, int, int] = DATE,
) -> Path:
    """Write a wheel with these members; METADATA and WHEEL are minimal unless given as text."""
    dist_info = f"{name}-{version}.dist-info"
    files = {
        **members,
        f"{dist_info}/METADATA": (metadata_text(version) if metadata is None else metadata).encode(),
        f"{dist_info}/WHEEL": (wheel_text(tags) if wheel is None else wheel).encode(),
        **{f"{dist_info}/{member}": data for member, data in (dist_info_members or {}).items()},
    }
    files[f"{dist_info}/RECORD"] = record_text(files, f"{dist_info}/RECORD").encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tags}.whl"
    write_zip(path, files, executable=executable, date_time=date_time)
    return path


def keep_plain(
    cache: Path, *, matrix: Matrix = MATRIX, version: str = "2.8.3", members: Mapping[str, bytes] = PACKAGE
) -> Path:
    """Put a plain wheel for a release of a small matrix into the cache; its sources do not exist."""
    folder = plain_folder("flash-attn", version, matrix.flash_attn[version].source_pin, cache)
    return make_wheel(
        folder,
        version=version,
        metadata=metadata_text(version, requires=["torch", "einops"]),
        wheel=WHEEL_TEXT,
        members=members,
        dist_info_members={"top_level.txt": b"flash_attn\n", "licenses/LICENSE": b"as upstream wants it\n"},
    )


WHEEL_TEXT = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
"""WHEEL of a plain wheel."""


def metadata_text(
    version: str = "2.8.3", *, name: str = "flash_attn", requires: Sequence[str] = (), requires_python: str = ">=3.9"
) -> str:
    """METADATA with these requirements and a description."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Requires-Python: {requires_python}"]
    return "\n".join([*lines, *(f"Requires-Dist: {item}" for item in requires), "", "Flash Attention\n"])


def wheel_text(tags: str) -> str:
    """WHEEL of a wheel with these (perhaps compressed) tags."""
    lines = sorted(f"Tag: {tag}" for tag in parse_tag(tags))
    return "\n".join(["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: false", *lines, ""])


def record_text(files: Mapping[str, bytes], itself: str) -> str:
    """RECORD of these files."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(data)])
    writer.writerow([itself, "", ""])
    return lines.getvalue()


def write_zip(
    path: Path,
    files: Mapping[str, bytes],
    *,
    executable: Collection[str] = (),
    date_time: tuple[int, int, int, int, int, int] = DATE,
    compression: int = zipfile.ZIP_DEFLATED,
) -> None:
    """Write a zip file with these members in this order."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, date_time)
            info.compress_type = compression
            info.external_attr = (0o100755 if name in executable else 0o100644) << 16
            archive.writestr(info, data)


def read_zip(path: Path) -> dict[str, bytes]:
    """The members of a zip file in their order."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tamper(path: Path, changes: Mapping[str, bytes | None]) -> Path:
    """Replace, add or (None) remove members of a wheel without updating RECORD."""
    files = {**read_zip(path), **changes}
    write_zip(path, {name: data for name, data in files.items() if data is not None})
    return path


def toolchain_of(cell: Cell, /, **changes: object) -> Toolchain:
    """Return the correct toolchain of a CK cell, with fields changed."""
    correct = Toolchain(
        torch=f"{cell.torch}+rocm{cell.rocm}", hip=f"{cell.rocm}.4242", cxx11_abi=True, glibc="2.35", python=cell.python
    )
    return correct.model_copy(update=changes)


def build_record(cell: Cell = CK, /, **changes: object) -> BuildRecord:
    """Return the correct build record of a cell, with fields changed."""
    compiled = cell.backend is Backend.CK
    correct = BuildRecord(
        cell=cell.id,
        label=str(Label.from_cell(cell)),
        offload_archs=MATRIX.archs(cell),
        source=MATRIX.flash_attn[cell.flash_attn].source_pin,
        toolchain=toolchain_of(cell) if compiled else Toolchain(),
        corrections={},
    )
    return correct.model_copy(update=changes)


def extension_name(cell: Cell = CK) -> str:
    """Return the file name of the extension in a CK wheel."""
    return f"flash_attn_2_cuda.cpython-{cell.python_tag.removeprefix('cp')}-x86_64-linux-gnu.so"


def extension(*targets: str, bundles: int = 2, **more: Any) -> bytes:
    """Return the extension of a CK wheel: a real library with bundles of a code object for each target."""
    fatbin = section(*[hip_bundle(*targets)] * bundles) if targets else b""
    correct: dict[str, Any] = {"needed": ("libc10.so", "libamdhip64.so.6"), "defined": ("PyInit_flash_attn_2_cuda",)}
    return library(**{"fatbin": fatbin, **correct, **more})


def payload(cell: Cell = CK, **more: Any) -> dict[str, bytes]:
    """Return the correct members of a wheel outside dist-info; `more` changes the extension of a CK wheel."""
    if cell.backend is Backend.TRITON:
        return {**PACKAGE, **added_members(cell)}
    return {**PACKAGE, extension_name(cell): extension(*MATRIX.archs(cell), **more)}


def finished_wheel(
    folder: Path,
    cell: Cell = CK,
    *,
    name: str = "flash_attn",
    version: str | None = None,
    tags: str | None = None,
    metadata: str | None = None,
    wheel: str | None = None,
    members: Mapping[str, bytes] | None = None,
    record: BuildRecord | None = None,
    more: Mapping[str, bytes] | None = None,
) -> Path:
    """Build the correct wheel of `cell`, except for the given values; its RECORD is valid.

    `more` adds or replaces members of dist-info.
    """
    label = Label.from_cell(cell)
    version = version or f"{cell.public_version}+{label}"
    pins = [*["amd-aiter>=0.0"] * cell.uses_aiter, f"torch=={label.torch[0]}.{label.torch[1]}.*"]
    compiled = cell.backend is Backend.CK
    tags = tags or (f"{cell.python_tag}-{cell.python_tag}-manylinux_2_28_x86_64" if compiled else "py3-none-any")
    return make_wheel(
        folder,
        name=name,
        version=version,
        tags=tags,
        metadata=metadata or metadata_text(version, requires=["einops", *pins]),
        wheel=wheel or (wheel_text(tags) if compiled else WHEEL_TEXT),
        members=payload(cell) if members is None else members,
        dist_info_members={
            "top_level.txt": b"flash_attn\nflash_attn_2_cuda\n" if compiled else b"flash_attn\n",
            "licenses/LICENSE": b"as upstream wants it\n",
            BUILD_RECORD_NAME: (record or build_record(cell)).as_bytes(),
            **(more or {}),
        },
        executable=[extension_name(cell)],
    )


def small_machine(cache: Path, environ: Mapping[str, str] | None = None) -> Context:
    """Return the small matrix on a small host with a cached plain build; PATH is empty by default."""
    keep_plain(cache)
    return Context(MATRIX, Host(cores=1, memory_gib=1), {"PATH": ""} if environ is None else environ, cache)
