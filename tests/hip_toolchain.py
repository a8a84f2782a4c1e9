"""The HIP compiler of Debian forky, for tests, in a root file system that is created once and cached.

Older suites of Debian support neither gfx950 nor gfx1201. Creating it needs root, mmdebstrap, half a minute, and 1 GB
in the cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared_folder import file_lock
from wheelfactory.core.files import scratch_dir

RECIPE = (
    "--variant=minbase",
    "--include=hipcc,libstdc++-15-dev,python3-dev,python3-venv,buildbox,postgresql",
    # the Release file of a testing suite expires before it is replaced; its signature is still verified
    '--aptopt=Acquire::Check-Valid-Until "false"',
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--format=directory",
    "forky",
)

DECLARATIONS = """\
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
struct dim3 { unsigned x, y, z; dim3(unsigned n) : x(n), y(1), z(1) {} };
typedef struct ihipStream_t *hipStream_t;
extern "C" int __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, hipStream_t = nullptr);
extern "C" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, hipStream_t *);
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
"""
"""What clang needs of hip/hip_runtime.h to compile a kernel and its call; the header takes two seconds in each test."""

# hipcc finds its own path through /proc; both mounts end with the process
_ENTER = 'mount -t proc proc "$1/proc"; mount --bind "$2" "$1/mnt"; root=$1; shift 2; exec chroot "$root" "$@"'
_UNSHARE = ("unshare", "--mount", "--propagation=private", "sh", "-ec")


@dataclass(frozen=True)
class HipToolchain:
    """A root file system with hipcc and the tools of its LLVM."""

    root: Path

    def run(self, folder: Path, *command: str, **environ: str) -> str:
        """Run a command in `folder` and return its output. Raises `CalledProcessError` if it fails."""
        llvm = next(self.root.glob("usr/lib/llvm-*/bin")).relative_to(self.root)
        settings = [f"{name}={value}" for name, value in environ.items()]
        inside = ["env", "-i", "--chdir=/mnt", f"PATH=/usr/bin:/bin:/{llvm}", *settings, *command]
        done = subprocess.run(
            [*_UNSHARE, _ENTER, "-", self.root, folder, *inside], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return done.stdout

    def compile(self, source: Path, archs: tuple[str, ...], *flags: str, **environ: str) -> Path:
        """Compile a HIP source for these archs and return the object file."""
        offload = [f"--offload-arch={arch}" for arch in archs]
        compiled = source.with_suffix(".o")
        self.run(source.parent, "hipcc", *offload, "-fPIC", *flags, "-c", source.name, "-o", compiled.name, **environ)
        return compiled

    def link(self, output: Path, objects: list[Path], *flags: str) -> Path:
        """Link object files, which must be in the folder of `output`, into a shared library."""
        self.run(output.parent, "hipcc", "-shared", *flags, *(item.name for item in objects), "-o", output.name)
        return output


def find_missing_requirement() -> str | None:
    """Return why this machine cannot create the root file system, or None if it can."""
    if os.geteuid():
        return "needs root, for chroot"
    for tool in ("mmdebstrap", "unshare", "apt-get"):
        if not shutil.which(tool):
            return f"needs {tool}"
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode:
        return "needs to be allowed to mount"
    if not _mirror():
        return "needs a Debian whose apt knows a mirror"
    return None


def make_hip_toolchain(cache: Path) -> HipToolchain:
    """Return the toolchain; create it if it is not cached."""
    return HipToolchain(make_root(cache, "hip", RECIPE))


def make_root(cache: Path, name: str, recipe: Sequence[str]) -> Path:
    """Return the root file system of an mmdebstrap recipe; create it if it is not cached."""
    root = cache / f"{name}-{hashlib.sha256(chr(0).join(recipe).encode()).hexdigest()[:16]}"
    with file_lock(cache, name):
        if not root.exists():
            with scratch_dir(cache) as scratch:
                subprocess.run(["mmdebstrap", "--quiet", *recipe, scratch / "root", _mirror()], check=True)
                (scratch / "root").rename(root)
    return root


def _mirror() -> str:
    """Return the Debian mirror of this machine's apt; empty if there is none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return next((uri for uri in known if uri.endswith("/debian/")), "")
