"""A HIP compiler for tests: the one of Debian forky, in a root file system of its own that is made once and kept.

Debian's own suites before it know neither gfx950 nor gfx1201. Making it takes root, mmdebstrap and half a minute, and
1 GB in the cache.
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
    "--include=hipcc,libstdc++-15-dev,python3-dev,python3-venv",
    # a suite in preparation may be served for longer than its Release file says; its signature is checked all the same
    '--aptopt=Acquire::Check-Valid-Until "false"',
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--format=directory",
    "forky",
)

# proc, because hipcc looks for itself there; both mounts end with the process
_ENTER = 'mount -t proc proc "$1/proc"; mount --bind "$2" "$1/mnt"; root=$1; shift 2; exec chroot "$root" "$@"'
_UNSHARE = ("unshare", "--mount", "--propagation=private", "sh", "-ec")


@dataclass(frozen=True)
class HipToolchain:
    """A root file system with hipcc and the tools of its LLVM."""

    root: Path

    def run(self, folder: Path, *command: str, **environ: str) -> str:
        """What a command prints that runs in `folder`. Raises `CalledProcessError` if it fails."""
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
        """The object file of a HIP source, with device code for these archs."""
        offload = [f"--offload-arch={arch}" for arch in archs]
        compiled = source.with_suffix(".o")
        self.run(source.parent, "hipcc", *offload, "-fPIC", *flags, "-c", source.name, "-o", compiled.name, **environ)
        return compiled

    def link(self, output: Path, objects: list[Path], *flags: str) -> Path:
        """The shared library of object files, which lie in its folder."""
        self.run(output.parent, "hipcc", "-shared", *flags, *(item.name for item in objects), "-o", output.name)
        return output


def find_missing_requirement() -> str | None:
    """Why there can be no such root file system here, or None if there can."""
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
    """The toolchain of the recipe, made if the cache does not have it yet."""
    return HipToolchain(make_root(cache, "hip", RECIPE))


def make_root(cache: Path, name: str, recipe: Sequence[str]) -> Path:
    """The root file system of an mmdebstrap recipe, made if the cache does not have it yet."""
    root = cache / f"{name}-{hashlib.sha256(chr(0).join(recipe).encode()).hexdigest()[:16]}"
    with file_lock(cache, name):
        if not root.exists():
            with scratch_dir(cache) as scratch:
                subprocess.run(["mmdebstrap", "--quiet", *recipe, scratch / "root", _mirror()], check=True)
                (scratch / "root").rename(root)
    return root


def _mirror() -> str:
    """The Debian mirror of this machine's apt; empty if it has none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return next((uri for uri in known if uri.endswith("/debian/")), "")
