"""A folder laid out like ROCm whose hipcc compiles, with the compiler of `hip_toolchain`.

Differences from AMD's ROCm: hipcc runs in its own root file system and sees only the given folders of this machine.
LLVM's tools are links to programs that this machine may be unable to run. clang is a small program with shared
libraries (`libclang-cpp`, `libLLVM`), so the bytes of ``llvm/bin/clang++`` do not identify the compiler. System headers
are not at the paths that the preprocessor prints.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from hip_toolchain import HipToolchain

HIPCC = Path(__file__).parent / "hip_rocm/hipcc"


def make_hip_rocm(toolchain: HipToolchain, folder: Path, *visible: Path) -> Path:
    """Create ROCm in `folder`. Its hipcc sees only `folder` and `visible` (such as sources, caches, TMPDIR).

    A compile in any other folder fails, because its files do not exist there.
    """
    (folder / "bin").mkdir(parents=True)
    for program in ("hipcc", "clang-offload-bundler"):
        shutil.copy(HIPCC, folder / "bin" / program)
    (folder / "root").symlink_to(toolchain.root)
    (folder / "fstab").write_text(_fstab(toolchain.root, folder, *visible))
    _link_parts(toolchain.root, folder)
    (folder / ".info").mkdir()
    (folder / ".info/version").write_text(f"{_version(folder / 'bin/hipcc')}\n")
    return folder


def _fstab(root: Path, *visible: Path) -> str:
    """Return the mounts of one compile as an fstab. `root` is mounted in itself, so that links into it resolve.

    Each compile gets a new /tmp, which removes the leftovers of killed compiles.
    """
    own = [f"proc {_quoted(root / 'proc')} proc", f"tmpfs {_quoted(root / 'tmp')} tmpfs"]
    paths = [path.resolve() for path in (root, *visible)]
    shared = [f"{_quoted(path)} {_quoted(root / path.relative_to('/'))} none bind,X-mount.mkdir" for path in paths]
    return "".join(f"{line}\n" for line in (*own, *shared))


def _quoted(path: Path) -> str:
    return str(path).replace(" ", r"\040")


def _link_parts(root: Path, folder: Path) -> None:
    """Link Debian's files at AMD's paths."""
    llvm = next(root.glob("usr/lib/llvm-*"))
    (folder / "llvm").symlink_to(llvm)
    (folder / "amdgcn").symlink_to(next(llvm.glob("lib/clang/*/amdgcn")))
    for name in ("include", "lib"):
        (folder / name).mkdir()
    (folder / "include/hip").symlink_to(root / "usr/include/hip")
    for library in root.glob("usr/lib/x86_64-linux-gnu/libamdhip64.so*"):
        (folder / "lib" / library.name).symlink_to(library)


def _version(hipcc: Path) -> str:
    """Return hipcc's version, such as ``6.4.43484``, which lacks the third number of AMD's release (6.4.3)."""
    text = subprocess.run([hipcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^HIP version: (\d+\.\d+\.\d+)", text, re.MULTILINE)
    assert found, text
    return found[1]
