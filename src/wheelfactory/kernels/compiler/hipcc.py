"""hipcc: identify the compiler by its content, and reduce upstream's command line to the flags that affect a kernel.

A reinstall keeps the identity, a change does not. Cells whose flags are equal after the reduction can share a kernel.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.files import file_sha256

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
        """Whether upstream's pair of inlining flags (`has_runaway_flags`) blows up in this compiler."""
        # by version, because a test compile takes minutes; an unknown version is 0 and counts as good
        return self.llvm >= (RUNAWAY_AMD if self.amd else RUNAWAY_UPSTREAM)


def run_tool(
    command: Sequence[str], environ: Mapping[str, str], folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of a compiler, whatever its exit status. Raises `OSError` if it cannot be started."""
    return subprocess.run(command, cwd=folder, env=dict(environ), capture_output=True, text=True, errors="replace")


def read_compiler(hipcc: str, environ: Mapping[str, str]) -> Compiler:
    """Read the compiler behind a hipcc. Raises `OSError` if it cannot be started."""
    done = run_tool([hipcc, "--version"], environ)
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
    return sorted(line for line in run_tool(command, environ).stdout.splitlines() if _LIBRARY_VERSION.match(line))


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


# hipcc appends this variable to its command line, where no compiler cache sees it (measured: both ccache and sccache
# then return wrong objects). Ours has the flags on the command line instead
APPEND_VARIABLE = "HIPCC_COMPILE_FLAGS_APPEND"

COMPILER_ENVIRONMENT = (
    *("HIP_PATH", "HIP_CLANG_PATH", "HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH", "HIP_PLATFORM", "HIP_COMPILER"),
    *("HIP_RUNTIME", "HIP_ROCCLR_HOME", "HIP_COMPILE_CXX_AS_HIP", "HIP_CLANG_HCC_COMPAT_MODE", "HIP_USE_PERL_SCRIPTS"),
    *("HCC_AMDGPU_TARGET", "ROCM_PATH", "CCC_OVERRIDE_OPTIONS", "CLANG_NO_DEFAULT_CONFIG"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
)
"""Variables that change the object of the same command line (sources: hipcc's code, clang's manual)."""

HEADER_OPTIONS = ("-I", "-isystem", "-iquote", "-idirafter")
OUTPUT_OPTIONS = ("-o", "-MF", "-MT", "-MQ")
"""Options that name output files."""
_WITH_VALUE = (
    *HEADER_OPTIONS,
    *OUTPUT_OPTIONS,
    *("-D", "-U", "-x", "-mllvm", "-Xclang", "-Xarch_device", "-Xarch_host", "-include"),
)

TORCH_ONLY = ("TORCH_", "PYBIND11_", "HIP_ENABLE_WARP_SYNC_BUILTINS", "HIPIFY_V2")
"""Prefixes of macros that depend on torch, and that no kernel reads: the extension's name, pybind11's ABI, a switch for
`__*_sync` intrinsics, which CK does not use, and which hipify translated the bindings (setup.py since 2.8.4)."""

EARLY_INLINE = "-amdgpu-early-inline-all"
FUNCTION_CALLS = "-amdgpu-function-calls"


def is_kernel_source(word: str) -> bool:
    """Whether a word of a command line is the path of a generated kernel."""
    # in every release, upstream's setup.py takes ``build/fmha_*wd*`` for generated sources
    folder, name = os.path.split(word)
    is_source = name.endswith((".hip", ".cu", ".cpp")) and not word.startswith("-")
    return is_source and name.startswith("fmha_") and os.path.basename(folder) == "build"


def kernel_name(source: str) -> str:
    """The file name of a source without extension."""
    return os.path.splitext(os.path.basename(source))[0]


def source_root(source: str) -> str:
    """The folder with setup.py; a generated source is in its subfolder ``build``."""
    return os.path.dirname(os.path.dirname(os.path.abspath(source)))


def rocm_root(hipcc: str) -> str:
    """The ROCm folder that a hipcc belongs to."""
    return os.path.dirname(os.path.dirname(os.path.abspath(hipcc)))


def has_runaway_flags(arguments: Sequence[str]) -> bool:
    """Whether a command line has the two flags that make some compilers inline without end (see `Compiler`)."""
    return f"{EARLY_INLINE}=true" in arguments and f"{FUNCTION_CALLS}=false" in arguments


def kernel_flags(arguments: Sequence[str], root: str, rocm: str, *, disable_early_inline: bool) -> list[str]:
    """Return the flags that affect a generated kernel, in order, without source and output.

    `arguments` exclude the compiler. Paths below `root` become relative.
    """
    # relative paths give the same flags for the same sources in another folder
    # Header folders of torch and Python are dropped: they differ in every cell, and no kernel includes one (`key`
    # verifies that).
    kept: list[str] = []
    for option, value in split_options(arguments):
        if option in OUTPUT_OPTIONS or (not option and is_kernel_source(value)):
            continue
        if option in HEADER_OPTIONS:
            folder = _header_folder(value, root, rocm)
            if folder:
                kept += [option + folder] if option == "-I" else [option, folder]
        elif option in ("-D", "-U"):
            # torch set the ABI macro until 2.7; 1 is the default of the standard library, so it changes nothing
            if not value.startswith(TORCH_ONLY) and value != "_GLIBCXX_USE_CXX11_ABI=1":
                kept.append(option + value)
        elif option == "-mllvm" and disable_early_inline and value == f"{EARLY_INLINE}=true":
            kept += [option, f"{EARLY_INLINE}=false"]
        elif value:
            kept += [option, value] if option else [value]  # a lone value belongs to an unknown option before it
        elif option not in ("-c", "-MD", "-MMD"):
            kept.append(option)
    return kept


def split_options(arguments: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Split arguments into (option, value), written as one word or two; option is empty for other words."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            yield word, next(words, "")
        elif word.startswith(("-I", "-D", "-U")):
            yield word[:2], word[2:]
        else:
            yield (word, "") if word.startswith("-") else ("", word)


def _header_folder(folder: str, root: str, rocm: str) -> str:
    """The header folder as the kernel's command names it; empty if no kernel needs it."""
    path = os.path.abspath(os.path.join(root, folder))
    if path == root or path.startswith(root + os.sep):
        return os.path.relpath(path, root)
    return path if path.startswith(rocm + os.sep) else ""


def appended_flags(environ: Mapping[str, str]) -> list[str]:
    """The flags that hipcc would append from the environment."""
    return shlex.split(environ.get(APPEND_VARIABLE, ""))


def kernel_command(hipcc: str, flags: Sequence[str], source: str, output: str) -> list[str]:
    """The command that compiles a kernel; run it in the kernel's `source_root`."""
    # Without -cuid, clang hashes the command line and the source path into a symbol. With the source's name, which is
    # unique in a release, the object is the same in every folder (measured, byte for byte).
    relative = os.path.relpath(os.path.abspath(source), source_root(source))
    return [hipcc, *flags, f"-cuid={kernel_name(source)}", "-x", "hip", "-c", relative, "-o", output]
