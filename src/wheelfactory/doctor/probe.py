"""A Python interpreter -> what it is and what torch it has, asked of itself in processes of their own.

It is asked as its user runs it, with user site-packages and PYTHONPATH, only not with the folder that one happens to
be in.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from wheelfactory.core.ask import ask
from wheelfactory.core.errors import InputError
from wheelfactory.doctor.machine import Python, Torch

TORCH_PROBE = ""
"""The program that asks torch, as text; filled in where one file is made of the doctor (`single_file`)."""

_ASK_PYTHON = r"""
import json, os, platform, sys, sysconfig
sys.path[:] = [folder for folder in sys.path if folder]
import importlib.metadata, importlib.util
def version(name):
    try:
        return importlib.metadata.version(name) or ""
    except Exception:
        return None
def glibc():
    try:
        name, _, number = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")
        return number if name == "glibc" else None
    except Exception:
        return None
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
kind = {"CPython": "cp", "PyPy": "pp"}.get(platform.python_implementation(), "py")
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
names = ("triton", "pytorch-triton-rocm", "triton-rocm", "einops", "amd-aiter", "rocm-sdk-core", "rocm")
print("answer:" + json.dumps({
    "executable": sys.executable,
    "version": platform.python_version(),
    "tag": "%s%d%d%s" % (kind, sys.version_info[0], sys.version_info[1], free),
    "system": platform.system(),
    "machine": platform.machine(),
    "glibc": glibc(),
    "pip": version("pip"),
    "managed": sys.prefix == sys.base_prefix and os.path.exists(marker),
    "torch": version("torch"),
    "torch_found": found("torch"),
    "packages": {name: version(name) for name in names if version(name) is not None},
}))
"""


def ask_python(
    executable: str, environ: Mapping[str, str], seconds: float
) -> tuple[Python, str | None, Mapping[str, str]]:
    """What an interpreter is, the version of its torch (empty if it has no metadata), and of what else matters.

    Raises `InputError` if it cannot be asked.
    """
    answer = ask([executable, "-c", _ASK_PYTHON], environ, seconds)
    said = answer.said
    if answer.trouble or not said:
        which = f"{executable} ({answer.last_line or 'it said nothing'})"
        raise InputError("cannot examine this Python", which, "name another with --python; 3.8 or newer")
    torch = said["torch"] if said["torch"] is not None or not said["torch_found"] else ""
    fields = ("executable", "version", "tag", "system", "machine", "glibc", "pip", "managed")
    return Python(**{name: said[name] for name in fields}), torch, said["packages"]


def ask_torch(executable: str, version: str, environ: Mapping[str, str], seconds: float) -> Torch:
    """What the torch of an interpreter says of itself; `version` is what its metadata says.

    The import and the question for GPUs may each crash or hang; what was said before that is kept.
    """
    # by name, because the one file that is made of the doctor has the text and no checkout
    program = TORCH_PROBE or import_module("wheelfactory.core.checkout").PROBE.read_text(encoding="utf-8")
    answer = ask([executable, "-c", program, "gpus"], environ, seconds)
    said = answer.said
    if "torch" not in said:
        return Torch(version, error=answer.last_line or "it ended without a word")
    return Torch(
        version or said["torch"],
        hip=said["hip"],
        cuda=said["cuda"],
        cxx11_abi=said["cxx11_abi"],
        sees_gpu=said.get("sees_gpu"),
        archs=tuple(gpu["arch"] for gpu in said.get("gpus", ()) if said["hip"] and gpu["arch"]),
    )
