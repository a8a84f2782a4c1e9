"""Find the manylinux platform tag of a wheel with compiled code: auditwheel reads its symbols, we check its libraries.

`auditwheel show` and not `repair`: with torch on the library path, `repair` grafts torch and HIP into the wheel and
succeeds (ROCm/aiter#5318: 890 MB).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.version import Version
from pydantic import BaseModel

from wheelfactory.core.errors import VerificationError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.models import parse_model
from wheelfactory.core.process import failure_reason, run
from wheelfactory.wheel.elf.dynamic import Dynamic
from wheelfactory.wheel.read import Wheel

# libraries of torch and ROCm, as globs: auditwheel compares them with versioned SONAMEs. Source: pytorch
# .ci/manywheel/repair_wheel.py, and the libraries in a ROCm 10 image
EXTERNAL_LIBRARIES = (
    *("libtorch*.so*", "libc10*.so*", "libshm*.so*"),
    *("libamdhip64.so*", "libhip*.so*", "libhsa-runtime64.so*", "libhsa-amd-aqlprofile64.so*"),
    *("libamd_comgr*.so*", "libamd_smi.so*", "libroc*.so*", "librccl.so*", "libMIOpen.so*", "libmagma.so*"),
    *("libdrm*.so*", "libnuma.so*", "libelf.so*"),
)

# libraries of every manylinux system. Source: PEP 600, and the policies in auditwheel
SYSTEM_LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "ld-linux-*.so.*"),
    *("libgcc_s.so.1", "libstdc++.so.6"),
)

# the platform names from before PEP 600, and their glibc
_OLD_NAMES = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_PLATFORM = re.compile(r"(?:linux|manylinux(?:1|2010|2014|_\d+_\d+))_(x86_64|aarch64)")


class _Upgrade(BaseModel):
    blacklisted_symbols: Mapping[str, tuple[str, ...]] = {}


class _Shown(BaseModel):
    """The part of the output of `auditwheel show --json` that is used."""

    sym_tag: str
    """The platform that the symbols of the wheel ask for."""
    unsupported_isa: bool
    policy_upgrades: Mapping[str, _Upgrade]


def find_platform(raw: Path, built_on: str | None, folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the platform tag of a wheel as file names spell it; None if the wheel has no compiled code.

    `built_on` is the glibc version of the build machine, None if unknown. Temporary files go below `folder`.
    Raises `InputError` if `raw` is not a wheel or damaged, `VerificationError` if auditwheel fails, or if the wheel
    needs a library that its users do not have, or no platform fits.
    """
    wheel = Wheel.open(raw)
    if not wheel.dynamics:
        return None
    architecture = parse_architecture(wheel)
    for name, elf in wheel.dynamics.items():
        if foreign := foreign_libraries(elf):
            which = f"{name} in {raw.name} needs {', '.join(foreign)}"
            hint = "do not link them, link them statically, or add them to EXTERNAL_LIBRARIES"
            raise VerificationError("libraries that are not of torch, ROCm or the system", which, hint)
    shown = _run_auditwheel(raw, folder, environ)
    symbols = shown.policy_upgrades.get(shown.sym_tag, _Upgrade()).blacklisted_symbols
    if symbols or shown.unsupported_isa:
        found = f"symbols of {', '.join(symbols)}" if symbols else "instructions that not every x86-64 processor has"
        raise _unexpected(raw.name, "code for every Linux system", found, "run `auditwheel show` on the raw wheel")
    glibc = _require_valid_glibc(raw.name, shown.sym_tag, architecture, Version(built_on) if built_on else None)
    return ".".join(sorted(manylinux_platforms(glibc, architecture)))


def _run_auditwheel(path: Path, folder: Path, environ: Mapping[str, str]) -> _Shown:
    with scratch_dir(folder) as scratch:
        # AUDITWHEEL_* variables set options, so the same wheel could get another tag; TMPDIR: it unpacks the wheel
        kept = {name: value for name, value in environ.items() if not name.startswith("AUDITWHEEL_")}
        command: list[str | Path] = [sys.executable, "-m", "auditwheel", "show", "--json", path]
        done = run(command, failure=VerificationError, environ={**kept, "TMPDIR": str(scratch)})
    hint = "run `auditwheel show` on the raw wheel and read its output"
    if done.returncode:
        raise VerificationError("auditwheel failed", f"{path.name}: {failure_reason(done)}", hint)
    return parse_model(_Shown, done.stdout.encode(), VerificationError("auditwheel failed", path.name, hint))


def foreign_libraries(elf: Dynamic) -> list[str]:
    """The libraries that an extension needs, and that are not of torch, ROCm or every manylinux system."""
    # a name with a slash is relative to the user's working directory, where another user could plant a library
    known = (*EXTERNAL_LIBRARIES, *SYSTEM_LIBRARIES)
    return [name for name in elf.needed if "/" in name or not any(fnmatchcase(name, pattern) for pattern in known)]


def parse_architecture(wheel: Wheel) -> str:
    """Return the architecture in the platform tags. Raises `VerificationError` unless it is exactly one of Linux."""
    found = {match[1] if (match := _PLATFORM.fullmatch(tag)) else None for tag in wheel.platform_tags}
    one = found.pop()
    if found or one is None:
        which = f"{wheel.path.name}: expected linux_x86_64 or linux_aarch64, found {', '.join(wheel.platform_tags)}"
        hint = "it has compiled code: build it with setup.py on the target machine"
        raise VerificationError("not tagged for one Linux architecture", which, hint)
    return one


def _require_valid_glibc(file: str, tag: str, architecture: str, built_on: Version | None) -> Version:
    """Return the glibc of the platform `tag`. Raises `VerificationError` if it is newer than the build machine's."""
    match = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{architecture}", tag)
    if match is None:
        remedy = "build it on the oldest system that it supports"
        raise _unexpected(file, f"a platform manylinux_X_Y_{architecture}", tag, remedy)
    glibc = Version(f"{match[1]}.{match[2]}")
    if built_on and glibc > built_on:  # the build machine itself could not install it
        remedy = "build with the system's compiler: this one links a newer libstdc++"
        raise _unexpected(file, f"a platform of glibc {built_on} (the build machine) or older", tag, remedy)
    return glibc


def manylinux_platforms(glibc: Version, arch: str) -> frozenset[str]:
    """Return the platform tag of a glibc version, and the legacy tag that auditwheel adds for old installers."""
    older = {f"{name}_{arch}" for name, version in _OLD_NAMES.items() if Version(version) == glibc}
    return frozenset({f"manylinux_{glibc.major}_{glibc.minor}_{arch}", *older})


def _unexpected(file: str, expected: str, found: str, remedy: str) -> VerificationError:
    return VerificationError("unexpected result of auditwheel", f"{file}: expected {expected}, found {found}", remedy)
