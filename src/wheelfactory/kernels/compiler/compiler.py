"""Identify the HIP compiler by its content: a reinstall keeps its identity, a change does not."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.files import file_sha256
from wheelfactory.kernels.compiler.flags import rocm_root

# LLVM's first release in which early inlining without function calls blows up (llvm/llvm-project#86332: 8 times the
# memory). With LLVM 21 a kernel of head dim 128 was not done after 9.5 CPU minutes instead of 24 s (measured)
RUNAWAY_UPSTREAM = 18

# AMD's first version with the blow-up; earlier ones disable the inlining pass (ROCm/rocm-libraries#11183, August 2026;
# reported there, not measured here)
RUNAWAY_AMD = 23

_DEVICE_LIBRARIES = ("amdgcn/bitcode/*.bc", "lib/llvm/lib/clang/*/lib/amdgcn/bitcode/*.bc")
_LIBRARY_VERSION = re.compile(r"#define (__GLIBC__|__GLIBC_MINOR__|__GLIBCXX__|_GLIBCXX_RELEASE|_LIBCPP_VERSION) ")
_TOOLS = (
    *("clang++", "lld", "clang-offload-bundler"),
    *("clang-linker-wrapper", "clang-offload-packager", "llvm-offload-binary"),  # of the new offload driver
)
_CONFIGURATION_FILE = re.compile("^Configuration file: (.+)$", re.MULTILINE)
# files beside hipcc that build the command line if hipcc itself is only a wrapper
_HIPCC = ("hipcc", "hipcc.bin", "hipcc.pl", "hipconfig*", "hipvars.pm")
_BESIDE_TOOLS = (
    *("*.cfg", "../lib/clang/*/amdgcn/bitcode/*.bc", "../lib/clang/*/include/**/*"),  # the headers hold device code
    *("../lib/libLLVM*.so*", "../lib/libclang-cpp*.so*"),  # the compiler itself, where clang is only a front end to it
    "../../*-linux-gnu/libLLVM.so.{llvm}*",  # the same on Debian
)


@dataclass(frozen=True)
class Compiler:
    """A HIP compiler."""

    version: str
    """As printed, such as ``AMD clang version 19.0.0git``."""
    llvm: int
    """LLVM's major version; 0 if unknown."""
    amd: bool
    """Whether AMD built it."""
    content: str
    """sha256 over everything that makes objects: hipcc, clang and its configuration files, linker, bundler, the tools
    of the new offload driver, device libraries, clang's headers, and the versions of the C and C++ libraries whose
    headers it uses."""

    @property
    def has_runaway_inlining(self) -> bool:
        """Whether upstream's pair of inlining flags (`flags.has_runaway_flags`) blows up in this compiler."""
        # by version, because a test compile takes minutes; an unknown version is 0 and counts as good
        return self.llvm >= (RUNAWAY_AMD if self.amd else RUNAWAY_UPSTREAM)


def read_compiler(hipcc: str, environ: Mapping[str, str]) -> Compiler:
    """Read the compiler behind a hipcc. Raises `OSError` if it cannot be started."""
    done = subprocess.run([hipcc, "--version"], capture_output=True, text=True, errors="replace", env=dict(environ))
    lines = [line.strip() for line in done.stdout.splitlines() if "version" in line]
    clang = next((line for line in lines if "clang version" in line), "")
    number = re.search(r"clang version (\d+)", clang)
    digest = hashlib.sha256("\n".join([*lines, *_host_libraries(hipcc, environ)]).encode())
    llvm = int(number[1]) if number else 0
    for path in sorted(set(_files(Path(hipcc), done.stdout, llvm, environ))):
        digest.update(bytes.fromhex(file_sha256(path)))
    return Compiler(
        version=clang.partition(" (")[0] or "; ".join(lines),
        llvm=llvm,
        amd="AMD" in clang or "roc-" in clang,
        content=digest.hexdigest(),
    )


def _host_libraries(hipcc: str, environ: Mapping[str, str]) -> list[str]:
    """The version macros of the C and C++ headers: the same compiler finds other headers on another system."""
    command = [hipcc, "-x", "hip", "--cuda-host-only", "-include", "cstdlib", "-dM", "-E", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=dict(environ))
    return sorted(line for line in done.stdout.splitlines() if _LIBRARY_VERSION.match(line))


def _files(hipcc: Path, version_text: str, llvm: int, environ: Mapping[str, str]) -> Iterator[Path]:
    """The files of this compiler whose content can change an object."""
    rocm = Path(rocm_root(str(hipcc)))
    yield hipcc.resolve()
    named = map(Path, _CONFIGURATION_FILE.findall(version_text))
    yield from (path for path in named if path.is_file())  # its options, such as the driver's, are in no command line
    for pattern in _HIPCC:
        yield from hipcc.resolve().parent.glob(pattern)
    installed = re.search(r"^InstalledDir: (.+)$", version_text, re.MULTILINE)
    candidates = [environ.get("HIP_CLANG_PATH", ""), str(rocm / "llvm/bin"), installed[1] if installed else ""]
    for folder in [Path(text) for text in candidates if text and Path(text, "clang++").exists()][:1]:
        yield from ((folder / tool).resolve() for tool in _TOOLS if (folder / tool).exists())
        for pattern in _BESIDE_TOOLS:
            found = folder.resolve().glob(pattern.format(llvm=llvm))
            yield from (path.resolve() for path in found if path.is_file())
    for pattern in _DEVICE_LIBRARIES:
        yield from rocm.glob(pattern)
