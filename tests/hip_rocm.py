"""A folder that looks like ROCm on this machine and whose hipcc really compiles: the one of `hip_toolchain`.

What differs from AMD's: hipcc works in a root file system of its own and sees of this machine only the folders it was
given. LLVM's tools are links to programs that this machine may not be able to run. clang is a small program with shared
libraries (`libclang-cpp`, `libLLVM`), so the bytes of ``llvm/bin/clang++`` alone do not tell compilers apart. System
headers are not where the preprocessor says, so a compiler cache out here has to preprocess each time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from hip_toolchain import HipToolchain

HIPCC = Path(__file__).parent / "hip_rocm/hipcc"


def make_hip_rocm(toolchain: HipToolchain, folder: Path, *visible: Path) -> Path:
    """ROCm in `folder`; its hipcc sees `visible` (such as sources, caches, TMPDIR), and `folder` itself.

    A compile in another folder of this machine ends with an error that its files do not exist.
    """
    (folder / "bin").mkdir(parents=True)
    shutil.copy(HIPCC, folder / "bin")
    (folder / "root").symlink_to(toolchain.root)
    (folder / "fstab").write_text(_fstab(toolchain.root, folder, *visible))
    _link_parts(toolchain.root, folder)
    (folder / ".info").mkdir()
    (folder / ".info/version").write_text(f"{_version(folder / 'bin/hipcc')}\n")
    return folder


def _fstab(root: Path, *visible: Path) -> str:
    """The mounts of one compile, for one call of mount; `root` sees itself so that links into it lead somewhere.

    The compiler's own /tmp is new each time, so what a killed one leaves there is gone.
    """
    own = [f"proc {_quoted(root / 'proc')} proc", f"tmpfs {_quoted(root / 'tmp')} tmpfs"]
    paths = [path.resolve() for path in (root, *visible)]
    shared = [f"{_quoted(path)} {_quoted(root / path.relative_to('/'))} none bind,X-mount.mkdir" for path in paths]
    return "".join(f"{line}\n" for line in (*own, *shared))


def _quoted(path: Path) -> str:
    return str(path).replace(" ", r"\040")


def _link_parts(root: Path, folder: Path) -> None:
    """AMD's places for what Debian has elsewhere."""
    llvm = next(root.glob("usr/lib/llvm-*"))
    (folder / "llvm").symlink_to(llvm)
    (folder / "amdgcn").symlink_to(next(llvm.glob("lib/clang/*/amdgcn")))
    for name in ("include", "lib"):
        (folder / name).mkdir()
    (folder / "include/hip").symlink_to(root / "usr/include/hip")
    for library in root.glob("usr/lib/x86_64-linux-gnu/libamdhip64.so*"):
        (folder / "lib" / library.name).symlink_to(library)


def _version(hipcc: Path) -> str:
    """``6.4.43484``, as hipcc says it: the third number of AMD's releases (6.4.3) cannot be had from that."""
    text = subprocess.run([hipcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^HIP version: (\d+\.\d+\.\d+)", text, re.MULTILINE)
    assert found, text
    return found[1]
