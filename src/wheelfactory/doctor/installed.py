"""A Python -> the flash-attn it has, and whether that imports; asked of that Python in processes of their own."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from wheelfactory.core.ask import ask
from wheelfactory.doctor.machine import Installed

_ASK_INSTALLED = r"""
import json, os, re, sys
sys.path[:] = [folder for folder in sys.path if folder]
from importlib import metadata, util

def found(name):
    try:
        metadata.version(name)
        return True
    except Exception:
        pass
    try:
        return util.find_spec(re.sub("[-.]", "_", name)) is not None
    except Exception:
        return False

def requirements(lines):
    names = [re.match(r"[\w.-]+", line.strip()) for line in lines if ";" not in line]
    return sorted({name.group() for name in names if name})

def record_of(dist):
    try:
        record = json.loads(dist.read_text("wheelfactory.json") or "{}")
    except Exception:
        return {}
    return record if isinstance(record, dict) else {}

dists, seen = [], set()
for dist in metadata.distributions(name="flash-attn"):
    place = os.path.realpath(str(dist.locate_file("")))
    if (place, dist.version) not in seen:
        seen.add((place, dist.version))
        dists.append((place, dist))
if dists:
    place, dist = dists[0]
    try:
        folder = os.path.dirname(os.path.dirname(os.path.realpath(util.find_spec("flash_attn").origin)))
    except Exception:
        folder = place
    listed = None
    if dist.read_text("RECORD") is not None:  # an egg, as `setup.py install` makes it, lists its sources at best
        listed = {os.path.realpath(str(dist.locate_file(file))) for file in dist.files or []}
    compiled = {}
    for entry in map(os.path.realpath, [*sys.path, folder]):  # an editable install may be found without a path
        for name in sorted(os.listdir(entry)) if os.path.isdir(entry) else []:
            if re.match(r"flash_attn_2_cuda\b.*\.so$", name):
                compiled[os.path.join(entry, name)] = entry
    if listed is None or folder != place:  # no RECORD, or one of an editable install, which lists no code
        listed = {path for path in compiled if compiled[path] == folder}
    own = [path for path in compiled if path in listed]
    print("answer:" + json.dumps({
        "version": dist.version or "",
        "location": folder,
        "requires": dist.requires or [],
        "record": record_of(dist),
        "extension": own[0] if own else None,
        "triton": os.path.isdir(os.path.join(folder, "flash_attn", "flash_attn_triton_amd")),
        "strays": [path for path in compiled if path not in own],
        "others": ["%s in %s" % (other.version, where) for where, other in dists[1:]],
        "missing": [name for name in requirements(dist.requires or []) if not found(name)],
        "shadow": os.getcwd() if os.path.isfile("flash_attn/__init__.py") and os.path.realpath("") != folder else "",
    }))
"""
"""For Python 3.8 and newer, which is where importlib.metadata begins."""

_ASK_IMPORT = r"""
import json, sys, traceback
sys.path[:] = [folder for folder in sys.path if folder]
try:
    from flash_attn.flash_attn_interface import flash_attn_func
except BaseException as error:
    said = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
else:
    said = ""
print("\nanswer:" + json.dumps({"error": said}), flush=True)
"""

_LONGEST_ERROR = 2000
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_PACKED_BUNDLE = re.compile(rb"CCOB[\x01-\x03]\0[\0\x01]\0")
"""Magic, version and method of a packed bundle; the four letters alone may stand in any large file by chance."""
_ARCH_OF_ENTRY = re.compile(rb"amdgcn-amd-amdhsa-[a-z]*-(gfx[0-9a-z-]+|amdgcnspirv)")
_MOST_ENTRIES_OF_BUNDLE = 256
"""There are some forty archs."""


def read_installed(python: str, environ: Mapping[str, str], seconds: float = 60) -> Installed | None:
    """The flash-attn of the interpreter `python`, with what importing it says; None if it has none or cannot be asked.

    The import may take `seconds`; that it crashed or took longer is told as its error.
    """
    answer = ask([python, "-c", _ASK_INSTALLED], environ, seconds)
    found = answer.said
    if not found:
        return None
    for name in ("requires", "strays", "others", "missing"):
        found[name] = tuple(found[name])
    archs = read_archs(Path(found["extension"])) if found["extension"] else ()
    return Installed(**found, extension_archs=archs, error=import_error(python, environ, seconds))


def import_error(python: str, environ: Mapping[str, str], seconds: float = 60) -> str:
    """Why flash-attn does not import in the interpreter `python`, in one line; empty if it does."""
    answer = ask([python, "-c", _ASK_IMPORT], environ, seconds)
    if "error" in answer.said:
        return str(answer.said["error"])[
            :_LONGEST_ERROR
        ]  # what happens at its end, after the import, is another matter
    return answer.last_line or "it ended without a word"


def read_archs(extension: Path) -> tuple[str, ...]:
    """The offload archs, without features, that an extension holds code for.

    Empty if it has none, cannot be read, or packs it: what is in a packed bundle, nobody can see without zstd.
    """
    try:
        with extension.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if _PACKED_BUNDLE.search(data):
                return ()
            return tuple(sorted(set(_archs_in(data))))
    except (OSError, ValueError):  # ValueError: nothing is in it
        return ()


def _archs_in(data: mmap.mmap) -> Iterator[str]:
    """Of each bundle, the archs for which it has code: magic, a count, then offset, size and id of each entry.

    Source: LLVM, "Clang Offload Bundler".
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
