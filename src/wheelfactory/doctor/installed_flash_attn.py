"""Find the flash-attn of a Python, and import it in a subprocess of that Python.

What it was built for is read from its build record, label or requirements.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path

from wheelfactory.core.cell import FLASH_ATTN_FALLBACK, FLASH_ATTN_NAME, local_version, product_name
from wheelfactory.core.errors import InputError
from wheelfactory.core.gpus import without_features
from wheelfactory.core.label import Label, rocm_of_torch
from wheelfactory.core.query import Interpreter, Packages
from wheelfactory.core.strict import parse_json
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.machine import InstalledFlashAttn, find_major_minor

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
# magic, version and method of a compressed bundle. The magic alone can occur by chance in a large file
_PACKED_BUNDLE = re.compile(rb"CCOB[\x01-\x03]\0[\0\x01]\0")
_ARCH_OF_ENTRY = re.compile(rb"amdgcn-amd-amdhsa-[a-z]*-(gfx[0-9a-z-]+|amdgcnspirv)")
# a limit for damaged files; LLVM knows about forty archs
_MOST_ENTRIES_OF_BUNDLE = 256


def read_flash_attn(python: Interpreter, probe: str) -> InstalledFlashAttn | None:
    """Return the flash-attn of an interpreter and its import error; None if missing or unreadable.

    The program `probe` imports it. A crash, or an import that takes too long, counts as an import error.
    """
    with suppress(InputError, OSError, ValueError, KeyError):  # the last three: unreadable metadata
        if found := _of_metadata(python.find_packages("flash_attn")):
            archs, has_code = read_extension_code(Path(found.extension)) if found.extension else ((), None)
            error = find_import_error(python, probe, has_extension=found.extension is not None)
            return replace(found, extension_archs=archs, has_device_code=has_code, error=error)
    return None


def find_foreign(python: Interpreter) -> tuple[str, str]:
    """Find a module flash_attn where no flash-attn is installed; return its directory and the owning distribution.

    Both are empty without such a module; the second also for a folder that no distribution owns.
    """
    with suppress(InputError, OSError, ValueError, KeyError):
        packages = python.find_packages("flash_attn")
        if origin := packages.origins["flash_attn"]:  # flash-attn-4 has none: only flash_attn.cute
            file = Path(origin).resolve()
            every = distributions(path=list(packages.search_path))
            owners = (one for one in every if any(_place(one, str(path)) == file for path in one.files or ()))
            owner = next(owners, None)
            return str(file.parents[1]), f"{owner.metadata['Name']} {owner.version}" if owner else ""
    return "", ""


def _of_metadata(packages: Packages) -> InstalledFlashAttn | None:
    """Return the flash-attn that Python imports, read from files only; None if missing."""
    found: dict[tuple[Path, str], Distribution] = {}
    for one in packages.distributions("flash-attn"):
        found.setdefault((_place(one, ""), one.version), one)
    if not found:
        return None
    (place, _), dist = next(iter(found.items()))
    origin = packages.origins["flash_attn"]
    folder = Path(origin).resolve().parents[1] if origin else place
    # the directory of an editable install may not be on the path
    compiled = _compiled([*map(Path, packages.search_path), folder])
    listed = {path for path in compiled if path.parent == folder}
    if folder == place and dist.read_text("RECORD") is not None:
        # the RECORD of an editable install lists no code; an egg from `setup.py install` lists its sources at best
        listed = {_place(dist, str(file)) for file in dist.files or ()}
    own = [path for path in compiled if path in listed]
    requires = tuple(dist.requires or ())
    names = {match[0] for line in requires if ";" not in line and (match := re.match(r"[\w.-]+", line.strip()))}
    record: object = None
    with suppress(ValueError):
        record = parse_json(dist.read_text("wheelfactory.json") or "{}")
    is_shadowed = Path("flash_attn/__init__.py").is_file() and Path.cwd().resolve() != folder
    return InstalledFlashAttn(
        version=dist.version or "",
        location=str(folder),
        requires=requires,
        build_record=record if isinstance(record, dict) else {},
        extension=str(own[0]) if own else None,
        has_triton_backend=(folder / "flash_attn/flash_attn_triton_amd").is_dir(),
        stray_modules=tuple(str(path) for path in compiled if path not in own),
        other_installs=tuple(f"{version} in {where}" for where, version in list(found)[1:]),
        missing_requirements=tuple(name for name in sorted(names) if not _is_there(name, packages)),
        shadowing_dir=str(Path.cwd()) if is_shadowed else "",
    )


def _place(dist: Distribution, file: str) -> Path:
    return Path(str(dist.locate_file(file))).resolve()


def _compiled(folders: Sequence[Path]) -> list[Path]:
    """Return the compiled flash-attn modules in some directories."""
    places = dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir())
    found = (path for place in places for path in sorted(place.glob("flash_attn_2_cuda*.so")))
    return [path for path in found if re.match(r"flash_attn_2_cuda\b", path.name)]


def _is_there(name: str, packages: Packages) -> bool:
    module = re.sub("[-.]", "_", name)
    return any(packages.distributions(name)) or PathFinder.find_spec(module, list(packages.search_path)) is not None


def find_import_error(python: Interpreter, probe: str, *, has_extension: bool = False) -> str:
    """Return the error of importing flash-attn with an interpreter, in one line; empty if it imports.

    With `has_extension`, an import that uses other kernels than those of its extension is an error.
    """
    answer = python.query("-c", probe, "import", *(["extension"] if has_extension else []))
    if "error" in answer.answers:
        # printed after the import, so a crash at exit does not count
        return str(answer.answers["error"])[:2000]
    return answer.last_line or "the process ended without output"


def read_extension_code(extension: Path) -> tuple[tuple[str, ...], bool | None]:
    """Return the offload archs, without features, that an extension has code for, and whether it has code at all.

    The archs are empty if unknown: the file is unreadable, or compresses them (the standard library has no zstd).
    """
    try:
        with extension.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if _PACKED_BUNDLE.search(data):
                return (), True
            archs = tuple(sorted(set(_archs_in(data))))
            if archs or data[:4] != b"\x7fELF":
                return archs, bool(archs) or None
            return (), data.find(b"amdgcn-amd-amdhsa") >= 0
    except (OSError, ValueError):  # ValueError: an empty file
        return (), None


def _archs_in(data: mmap.mmap) -> Iterator[str]:
    """Yield the archs of each offload bundle: magic, entry count, then offset, size, id length and id of each entry.

    Source: LLVM documentation, "Clang Offload Bundler".
    """
    at = data.find(_BUNDLE)
    while at >= 0:
        place = at + len(_BUNDLE)
        at = data.find(_BUNDLE, place)
        count = int.from_bytes(data[place : place + 8], "little")
        place += 8
        for _ in range(min(count, _MOST_ENTRIES_OF_BUNDLE)):
            head = data[place : place + 24]
            if len(head) < 24:
                break
            _, size, length = struct.unpack("<QQQ", head)
            name = _ARCH_OF_ENTRY.search(data[place + 24 : place + 24 + min(length, 256)])
            if name and size:
                yield name[1].decode("ascii")
            place += 24 + length


# labels of all known builders contain this. Builders write ROCm in many ways, so it is read from our own labels only
_LABEL_TORCH = re.compile(r"torch(\d+)\.(\d+)", re.ASCII)
_TORCH_PIN = re.compile(r"torch\s*\(?\s*(?:==|~=)\s*(\d+)\.(\d+)", re.ASCII)


def is_fallback(installed: InstalledFlashAttn | None) -> bool:
    """Whether it is the fallback named flash-attn, which has no kernels."""
    return installed is not None and product_name(FLASH_ATTN_NAME, installed.version) == FLASH_ATTN_FALLBACK


def is_compiled(installed: InstalledFlashAttn) -> bool:
    """Whether it has compiled kernels, and so requires one torch, ROCm and Python."""
    return installed.extension is not None


def find_build_torch(installed: InstalledFlashAttn) -> tuple[tuple[int, int], str] | None:
    """Return the torch it was built for as (major, minor) and the source of that fact; None if unknown."""
    torch = _toolchain(installed).get("torch")
    if isinstance(torch, str) and find_major_minor(torch):
        return find_major_minor(torch) or (0, 0), "build record"
    if named := _LABEL_TORCH.search(_local(installed)):
        return (int(named[1]), int(named[2])), "label"
    pins = [match for match in map(_TORCH_PIN.match, installed.requires) if match]
    return ((int(pins[0][1]), int(pins[0][2])), "requirements") if pins else None


def find_build_rocm(installed: InstalledFlashAttn, facts: DoctorFacts) -> tuple[int, int] | None:
    """Return the ROCm it was built for as (major, minor); None if unknown."""
    try:
        return Label.parse(_local(installed)).rocm
    except InputError:
        built = _toolchain(installed)
        return rocm_of_torch(str(built.get("torch", "")), str(built.get("hip") or ""), None, facts.hips)


def find_build_cxx11_abi(installed: InstalledFlashAttn) -> bool | None:
    """Return whether it was compiled with the new C++ ABI; None if unknown."""
    abi = _toolchain(installed).get("cxx11_abi")
    return abi if isinstance(abi, bool) else None


def list_compiled_archs(installed: InstalledFlashAttn) -> tuple[str, ...]:
    """Return the offload archs it has compiled code for, without features; empty if unknown."""
    listed = installed.build_record.get("offload_archs")
    if isinstance(listed, (list, tuple)) and listed:
        return tuple(without_features(str(arch)) for arch in listed)
    return installed.extension_archs


def has_cuda_label(installed: InstalledFlashAttn) -> bool:
    """Whether it has the label of a CUDA wheel, such as ``cu12torch2.6cxx11abiFALSE``."""
    return re.match(r"cu\d", _local(installed)) is not None


def has_label(installed: InstalledFlashAttn) -> bool:
    """Whether its version has a local part. A wheel that pip builds from PyPI's sdist has none."""
    return bool(_local(installed))


def _local(installed: InstalledFlashAttn) -> str:
    return local_version(installed.version)


def _toolchain(installed: InstalledFlashAttn) -> Mapping[str, object]:
    toolchain = installed.build_record.get("toolchain")
    return toolchain if isinstance(toolchain, Mapping) else {}
